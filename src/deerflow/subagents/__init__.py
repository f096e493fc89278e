"""Sub-agents: parts of a task, done in parallel by agents with a context of their own."""

from deerflow.subagents.attempt import SubagentTask
from deerflow.subagents.builder import SubagentBuilder
from deerflow.subagents.config import SubagentConfig, SubagentResult, SubagentStatus
from deerflow.subagents.executor import SubagentExecutor
from deerflow.subagents.registry import SubagentRegistry
from deerflow.subagents.task_tool import make_task_tool

__all__ = [
    "SubagentBuilder",
    "SubagentConfig",
    "SubagentExecutor",
    "SubagentRegistry",
    "SubagentResult",
    "SubagentStatus",
    "SubagentTask",
    "make_task_tool",
]
