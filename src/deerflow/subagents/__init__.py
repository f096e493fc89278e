"""Sub-agents: agents with their own context that execute parts of a run's work in parallel."""

from deerflow.subagents.background import Background
from deerflow.subagents.background_tools import make_background_tools
from deerflow.subagents.builder import SubagentBuilder
from deerflow.subagents.config import SubagentConfig, SubagentResult, SubagentStatus, TaskSpec, subagent_limit
from deerflow.subagents.delegation import Delegation, TaskArguments
from deerflow.subagents.executor import SubagentExecutor
from deerflow.subagents.markdown import MarkdownSubagents
from deerflow.subagents.news import BackgroundMiddleware, InboxMiddleware
from deerflow.subagents.registry import SubagentRegistry
from deerflow.subagents.task_tool import make_task_tool

__all__ = [
    "Background",
    "BackgroundMiddleware",
    "Delegation",
    "InboxMiddleware",
    "MarkdownSubagents",
    "SubagentBuilder",
    "SubagentConfig",
    "SubagentExecutor",
    "SubagentRegistry",
    "SubagentResult",
    "SubagentStatus",
    "TaskArguments",
    "TaskSpec",
    "make_background_tools",
    "make_task_tool",
    "subagent_limit",
]
