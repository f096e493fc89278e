"""Gives the model a result for tool calls that failed, were interrupted, or may have run before a crash.

A failed tool is a result for the model, not the end of the run; interrupts and cancellation propagate. A call
with side effects is recorded before its tool runs and again when it has finished: when a run resumes after
its process died, a call that had started is not repeated. Whether a mail was sent is unknown here, but the
model can check. Providers reject a history in which a call has no result: the missing results are added to
the request only, so that a resumed turn still finds its calls without results and runs them. Of an incomplete
response the model sees only the text: an incomplete thinking block has no signature, which providers require.
"""

import hashlib
import logging
from collections import defaultdict, deque
from collections.abc import Sequence

import orjson
from langchain_core.messages import AIMessage, AnyMessage, InvalidToolCall, ToolCall, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp
from typing_extensions import override

from deerflow.agents.messages import ENDED, NOTE, is_ai, is_result, may_have_results
from deerflow.agents.middlewares.base import ChainMiddleware, error_result
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler, ToolHandler, ToolRequest, ToolResult
from deerflow.connection_errors import without_objects
from deerflow.errors import DeerFlowError
from deerflow.storage import EffectState
from deerflow.tools.define import SAFE_TO_REPEAT

logger = logging.getLogger(__name__)

MAX_DETAIL_CHARS = 500


_WEB_TOOLS = frozenset({"web_search", "image_search", "web_fetch"})
"""Tools that models expect and that only the settings add."""
_NOT_CONFIGURED = (
    "Error: {name} is not configured on this server. Go on without it and say so; the operator can add it "
    "below `tools:` in config.yaml, as docs/howto/web.md describes."
)


class ToolErrorMiddleware(ChainMiddleware):
    """Returns an error result for a call whose tool raised, and for a web tool that is not configured."""

    switch = "tool_errors"

    @override
    async def awrap_tool_call(self, request: ToolRequest, handler: ToolHandler) -> ToolResult:
        name = request.tool_call["name"]
        if request.tool is None and name in _WEB_TOOLS:
            return error_result(request.tool_call, _NOT_CONFIGURED.format(name=name))
        try:
            return await handler(request)
        except GraphBubbleUp:
            raise
        except Exception as error:  # a tool may raise anything; the model gets an error result
            if not isinstance(error, DeerFlowError):
                logger.exception("tool %s failed", name)
            return error_result(request.tool_call, tool_error_text(name, error))


def tool_error_text(tool: str, error: Exception) -> str:
    """Return a sentence that says what failed and what to do about it."""
    if isinstance(error, DeerFlowError):
        return f"Error: {error}"
    detail = without_objects(str(error))[:MAX_DETAIL_CHARS]
    what = f"{type(error).__name__}: {detail}" if detail else type(error).__name__
    return f"Error: {tool} failed ({what}). Go on with what you have, or try another way."


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
    async def awrap_tool_call(self, request: ToolRequest, handler: ToolHandler) -> ToolResult:
        context = request.runtime.context
        effects = context.effects if context is not None else None
        if effects is None or is_safe_to_repeat(request.tool):
            return await handler(request)
        call = identity(request, context.task_id)
        earlier = await effects.start(call)
        if earlier is not None:
            return error_result(request.tool_call, _NEWS[earlier].format(name=request.tool_call["name"]))
        result = await handler(request)
        effects.finish(call)
        return result


def is_safe_to_repeat(tool: BaseTool | None) -> bool:
    """Return whether a tool is declared read-only or idempotent."""
    metadata = (tool.metadata if tool is not None else None) or {}
    return any(metadata.get(hint) is True for hint in _HINTS)


def identity(request: ToolRequest, task_id: str | None) -> bytes:
    """Return a digest that identifies a call across attempts: its task, id, name and arguments."""
    call = request.tool_call
    text = orjson.dumps(
        [task_id, call["id"], call["name"], call["args"]], option=orjson.OPT_SORT_KEYS, default=repr
    )
    return hashlib.blake2b(text, digest_size=16).digest()


INTERRUPTED = "This call was interrupted and has no result. Make it again if you still need it."


class DanglingToolCallMiddleware(ChainMiddleware):
    """Adds a result for every unanswered tool call of the request, and reduces incomplete answers to text."""

    switch = "dangling_calls"
    before = (
        "ToolResultLabelMiddleware",
        "McpRoutingMiddleware",
        "ToolProgressMiddleware",
        "LoopDetectionMiddleware",
        "TokenBudgetMiddleware",
    )

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        messages = with_answers(without_fragments(request.messages))
        return await handler(request if messages is request.messages else request.override(messages=messages))


def without_fragments(messages: list[AnyMessage]) -> list[AnyMessage]:
    """Return `messages` with incomplete answers reduced to their text; the same list if there are none.

    An incomplete answer at the end is removed: the model must write a new one, not continue mid-sentence.
    """
    if not any(is_ai(each) and ENDED in each.additional_kwargs for each in messages):
        return messages
    kept = [shown for each in messages if (shown := _as_text(each)) is not None]
    return kept[:-1] if kept and ENDED in kept[-1].additional_kwargs else kept


def _as_text(message: AnyMessage) -> AnyMessage | None:
    kwargs = message.additional_kwargs
    if ENDED not in kwargs:
        return message
    if NOTE in kwargs or not message.text.strip():
        return None
    return AIMessage(message.text, id=message.id, additional_kwargs={ENDED: kwargs[ENDED]})


def with_answers(messages: list[AnyMessage]) -> list[AnyMessage]:
    """Return `messages` with each call's result directly after it; the same list if nothing is missing."""
    if is_complete(messages):
        return messages
    results: defaultdict[str | None, deque[ToolMessage]] = defaultdict(deque)
    for message in messages:
        if isinstance(message, ToolMessage):
            results[message.tool_call_id].append(message)  # in order: some models reuse an id
    repaired: list[AnyMessage] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            continue
        repaired.append(message)
        if isinstance(message, AIMessage):
            calls: list[ToolCall | InvalidToolCall] = [
                *message.tool_calls,
                *(call for call in message.invalid_tool_calls if call["id"]),
            ]
            repaired += [
                results[call["id"]].popleft() if results[call["id"]] else error_result(call, INTERRUPTED)
                for call in calls
            ]
    return repaired


def is_complete(messages: Sequence[AnyMessage]) -> bool:
    """Return whether every call's result precedes the next message, and every result has a call."""
    if not may_have_results(messages):
        return not any(
            type(each) is AIMessage and (each.tool_calls or each.invalid_tool_calls) for each in messages
        )
    waiting: set[str | None] = set()
    for message in messages:
        if is_result(message):
            if message.tool_call_id not in waiting:
                return False
            waiting.discard(message.tool_call_id)
        else:
            if waiting:
                return False
            if is_ai(message) and (message.tool_calls or message.invalid_tool_calls):
                waiting = {call["id"] for call in [*message.tool_calls, *message.invalid_tool_calls]}
    return not waiting
