"""The effects on model and tool calls, one file each."""

from deerflow.agents.middlewares.base import Audience, HouseMiddleware, check_order
from deerflow.agents.middlewares.clarification import ClarificationMiddleware
from deerflow.agents.middlewares.dangling_calls import DanglingToolCallMiddleware
from deerflow.agents.middlewares.input_sanitizing import InputSanitizingMiddleware
from deerflow.agents.middlewares.malformed_calls import MalformedCallMiddleware
from deerflow.agents.middlewares.ready_tools import ReadyToolsMiddleware
from deerflow.agents.middlewares.result_labels import ToolResultLabelMiddleware
from deerflow.agents.middlewares.subagent_limit import SubagentLimitMiddleware
from deerflow.agents.middlewares.title import TitleMiddleware
from deerflow.agents.middlewares.tool_errors import ToolErrorMiddleware
from deerflow.agents.middlewares.tool_offer import ToolOfferMiddleware
from deerflow.agents.middlewares.turn_start import TurnStartMiddleware
from deerflow.agents.middlewares.uploads import UploadsMiddleware
from deerflow.agents.middlewares.view_image import ViewImageMiddleware

__all__ = [
    "Audience",
    "ClarificationMiddleware",
    "DanglingToolCallMiddleware",
    "HouseMiddleware",
    "InputSanitizingMiddleware",
    "MalformedCallMiddleware",
    "ReadyToolsMiddleware",
    "SubagentLimitMiddleware",
    "TitleMiddleware",
    "ToolErrorMiddleware",
    "ToolOfferMiddleware",
    "ToolResultLabelMiddleware",
    "TurnStartMiddleware",
    "UploadsMiddleware",
    "ViewImageMiddleware",
    "check_order",
]
