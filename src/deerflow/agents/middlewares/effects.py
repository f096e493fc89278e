"""Keeps a crash from doing things twice.

A call is recorded before its tool runs and again when it has finished. When a run resumes after its process
died, a call that had started is not repeated: whether a mail was sent or a line appended is unknown here, but
the model can check. Tools without side effects are marked as such and are not recorded.
"""

import hashlib

import orjson
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.types import ToolCall, ToolHandler, ToolResult
from deerflow.storage import EffectState
from deerflow.tools.define import SAFE_TO_REPEAT

_HINTS = (SAFE_TO_REPEAT, "readOnlyHint", "idempotentHint")
"""DeerFlow's own metadata key, and the hints of MCP servers."""

_NEWS = {
    EffectState.STARTED: (
        "This call of {name} had begun when the server stopped. It may have run wholly, in part or not at "
        "all, and it was not repeated. Look at what it was to change, then call it again if that is needed."
    ),
    EffectState.FINISHED: (
        "This call of {name} ran to its end before the server stopped, but its result was lost. It was not "
        "repeated. Look at what it changed; call it again only if doing it twice is right."
    ),
}


class EffectsMiddleware(ChainMiddleware):
    """Records tool calls with side effects, and does not repeat one that had started."""

    @override
    async def awrap_tool_call(self, request: ToolCall, handler: ToolHandler) -> ToolResult:
        context = request.runtime.context
        effects = context.effects if context is not None else None
        if effects is None or is_safe_to_repeat(request.tool):
            return await handler(request)
        call = identity(request, context.task_id)
        earlier = await effects.start(call)
        if earlier is not None:
            return _told(request, earlier)
        result = await handler(request)
        effects.finish(call)
        return result


def is_safe_to_repeat(tool: BaseTool | None) -> bool:
    """Return whether a tool is declared read-only or idempotent."""
    metadata = (tool.metadata if tool is not None else None) or {}
    return any(metadata.get(hint) is True for hint in _HINTS)


def identity(request: ToolCall, task_id: str | None) -> bytes:
    """Return a digest that identifies a call across attempts: its task, id, name and arguments."""
    call = request.tool_call
    text = orjson.dumps(
        [task_id, call["id"], call["name"], call["args"]], option=orjson.OPT_SORT_KEYS, default=repr
    )
    return hashlib.blake2b(text, digest_size=16).digest()


def _told(request: ToolCall, earlier: EffectState) -> ToolMessage:
    name = request.tool_call["name"]
    return ToolMessage(
        _NEWS[earlier].format(name=name),
        tool_call_id=request.tool_call["id"] or "",
        name=name,
        status="error",
    )
