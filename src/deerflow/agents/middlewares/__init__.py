"""Middlewares around model and tool calls, one per file."""

from deerflow.agents.middlewares.base import AgentKind, ChainMiddleware, check_order
from deerflow.agents.middlewares.loop_guard import LoopDetectionMiddleware
from deerflow.agents.middlewares.model_errors import ModelErrorMiddleware
from deerflow.agents.middlewares.read_before_write import ReadBeforeWriteMiddleware
from deerflow.agents.middlewares.reminder import ReminderMiddleware
from deerflow.agents.middlewares.summarization import SummarizationMiddleware
from deerflow.agents.middlewares.title import TitleMiddleware
from deerflow.agents.middlewares.todo import TodoMiddleware
from deerflow.agents.middlewares.token_budget import TokenBudgetMiddleware
from deerflow.agents.middlewares.tool_call_removal import ClarificationMiddleware, SubagentLimitMiddleware
from deerflow.agents.middlewares.tool_failures import DanglingToolCallMiddleware, ToolErrorMiddleware
from deerflow.agents.middlewares.tool_offer import (
    DeferredToolsMiddleware,
    ReadyToolsMiddleware,
    ToolOfferMiddleware,
)
from deerflow.agents.middlewares.tool_output import ToolOutputBudgetMiddleware
from deerflow.agents.middlewares.turn_start import FailureNoteMiddleware, TurnStartMiddleware
from deerflow.agents.middlewares.untrusted_text import InputSanitizingMiddleware, ToolResultLabelMiddleware
from deerflow.agents.middlewares.unusable_answers import (
    CutOffMiddleware,
    EmptyAnswerMiddleware,
    MalformedCallMiddleware,
    SafetyStopMiddleware,
)
from deerflow.agents.middlewares.uploads import UploadsMiddleware, ViewImageMiddleware

__all__ = [
    "AgentKind",
    "ChainMiddleware",
    "ClarificationMiddleware",
    "CutOffMiddleware",
    "DanglingToolCallMiddleware",
    "DeferredToolsMiddleware",
    "EmptyAnswerMiddleware",
    "FailureNoteMiddleware",
    "InputSanitizingMiddleware",
    "LoopDetectionMiddleware",
    "MalformedCallMiddleware",
    "ModelErrorMiddleware",
    "ReadBeforeWriteMiddleware",
    "ReadyToolsMiddleware",
    "ReminderMiddleware",
    "SafetyStopMiddleware",
    "SubagentLimitMiddleware",
    "SummarizationMiddleware",
    "TitleMiddleware",
    "TodoMiddleware",
    "TokenBudgetMiddleware",
    "ToolErrorMiddleware",
    "ToolOfferMiddleware",
    "ToolOutputBudgetMiddleware",
    "ToolResultLabelMiddleware",
    "TurnStartMiddleware",
    "UploadsMiddleware",
    "ViewImageMiddleware",
    "check_order",
]
