"""Sub-agents: agents with their own context that execute parts of a run's work in parallel."""

from deerflow.subagents.background import Background
from deerflow.subagents.background_tools import make_background_tools
from deerflow.subagents.builder import SubagentBuilder
from deerflow.subagents.config import SubagentConfig, SubagentResult, SubagentStatus
from deerflow.subagents.delegation import Delegation, TaskArguments
from deerflow.subagents.executor import SubagentExecutor
from deerflow.subagents.limits import subagent_limit
from deerflow.subagents.markdown import MarkdownSubagents
from deerflow.subagents.news import BackgroundMiddleware, InboxMiddleware
from deerflow.subagents.places import PlaceMiddleware
from deerflow.subagents.registry import SubagentRegistry
from deerflow.subagents.task import SubagentTask
from deerflow.subagents.task_tool import make_task_tool

__all__ = [
    "Background",
    "BackgroundMiddleware",
    "Delegation",
    "InboxMiddleware",
    "MarkdownSubagents",
    "PlaceMiddleware",
    "SubagentBuilder",
    "SubagentConfig",
    "SubagentExecutor",
    "SubagentRegistry",
    "SubagentResult",
    "SubagentStatus",
    "SubagentTask",
    "TaskArguments",
    "make_background_tools",
    "make_task_tool",
    "subagent_limit",
]
