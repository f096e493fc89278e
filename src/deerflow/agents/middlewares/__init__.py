"""Middlewares around model and tool calls, one per file."""

from deerflow.agents.middlewares.base import Audience, ChainMiddleware, check_order
from deerflow.agents.middlewares.clarification import ClarificationMiddleware
from deerflow.agents.middlewares.dangling_calls import DanglingToolCallMiddleware
from deerflow.agents.middlewares.deferred_tools import DeferredToolsMiddleware
from deerflow.agents.middlewares.empty_answer import EmptyAnswerMiddleware
from deerflow.agents.middlewares.failure_notes import FailureNoteMiddleware
from deerflow.agents.middlewares.input_sanitizing import InputSanitizingMiddleware
from deerflow.agents.middlewares.loop_guard import LoopDetectionMiddleware
from deerflow.agents.middlewares.malformed_calls import MalformedCallMiddleware
from deerflow.agents.middlewares.model_errors import ModelErrorMiddleware
from deerflow.agents.middlewares.read_before_write import ReadBeforeWriteMiddleware
from deerflow.agents.middlewares.ready_tools import ReadyToolsMiddleware
from deerflow.agents.middlewares.reminder import ReminderMiddleware
from deerflow.agents.middlewares.result_labels import ToolResultLabelMiddleware
from deerflow.agents.middlewares.subagent_limit import SubagentLimitMiddleware
from deerflow.agents.middlewares.summarization import SummarizationMiddleware
from deerflow.agents.middlewares.title import TitleMiddleware
from deerflow.agents.middlewares.todo import TodoMiddleware
from deerflow.agents.middlewares.token_budget import TokenBudgetMiddleware
from deerflow.agents.middlewares.tool_errors import ToolErrorMiddleware
from deerflow.agents.middlewares.tool_offer import ToolOfferMiddleware
from deerflow.agents.middlewares.tool_output import ToolOutputBudgetMiddleware
from deerflow.agents.middlewares.truncated_answers import CutOffMiddleware, SafetyStopMiddleware
from deerflow.agents.middlewares.turn_start import TurnStartMiddleware
from deerflow.agents.middlewares.uploads import UploadsMiddleware
from deerflow.agents.middlewares.view_image import ViewImageMiddleware

__all__ = [
    "Audience",
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
