"""Sub-agents: agents with their own context that execute parts of a run's work in parallel."""

from deerflow.subagents.background import Background, BackgroundMiddleware, InboxMiddleware
from deerflow.subagents.background_tools import make_background_tools
from deerflow.subagents.builder import SubagentBuilder
from deerflow.subagents.config import (
    SubagentConfig,
    SubagentResult,
    SubagentStatus,
    TaskSpec,
    subagent_limit,
)
from deerflow.subagents.delegation import TaskArguments, TaskFactory
from deerflow.subagents.executor import SubagentExecutor
from deerflow.subagents.markdown import MarkdownSubagents
from deerflow.subagents.registry import SubagentRegistry
from deerflow.subagents.task_tool import make_task_tool

__all__ = [
    "Background",
    "BackgroundMiddleware",
    "InboxMiddleware",
    "MarkdownSubagents",
    "SubagentBuilder",
    "SubagentConfig",
    "SubagentExecutor",
    "SubagentRegistry",
    "SubagentResult",
    "SubagentStatus",
    "TaskArguments",
    "TaskFactory",
    "TaskSpec",
    "make_background_tools",
    "make_task_tool",
    "subagent_limit",
]
