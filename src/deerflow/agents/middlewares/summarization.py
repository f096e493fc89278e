"""Keeps a conversation of any length within the model's context window.

Before each call the request is estimated by length, and counted exactly near the limit. Above the limit, old
tool results are shortened to a line, then old messages are replaced by a summary in the state. Both happen
once, at the limit, and not before each call, so that the provider's prompt cache stays valid in between. If
a provider still rejects a request as too long, it is shortened and sent again.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, HumanMessage, RemoveMessage
from langchain_core.tools import BaseTool
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.middlewares.compaction import (
    clipped,
    durable_state,
    smaller,
    split,
    stale_results,
    summary_message,
    without_results,
)
from deerflow.agents.middlewares.summarizer import summarise
from deerflow.agents.middlewares.tokens import TokenCounter, estimate
from deerflow.agents.state import ThreadState
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.config import ContextSize, SummarizationSettings
from deerflow.context import RunContext, Spend
from deerflow.domain import new_id
from deerflow.models import explain

logger = logging.getLogger(__name__)

UPDATE_KEY = "SummarizationMiddleware.before_model"
"""The node whose updates DeerFlow 2's web client reads; there is no such node here, so it is published."""
WINDOW_SHARE = 0.9
"""The share of a model's window that a request may fill: the answer needs space, and counts vary a little."""
ENOUGH_SHARE = 0.7
"""Dropping results must reduce the request to this share of the limit, or the next call compacts again."""
LEAST_TOKENS = 500
TOOL_TOKENS = 150
MAX_RETRIES = 3


@dataclass(frozen=True, slots=True)
class Compacted:
    """A conversation after compaction: the request's messages and the state update."""

    messages: list[AnyMessage]
    removed: list[AnyMessage] = field(default_factory=list)
    update: dict[str, Any] = field(default_factory=dict)


class SummarizationMiddleware(ChainMiddleware):
    """Compacts the conversation when it reaches its limit."""

    before = ("UploadsMiddleware", "ReminderMiddleware", "DanglingToolCallMiddleware", "ModelErrorMiddleware")

    def __init__(
        self, *, settings: SummarizationSettings, model: Callable[[str], BaseChatModel] | None = None
    ) -> None:
        super().__init__()
        self._settings = settings
        self._model = model
        self._counter = TokenCounter()

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        state = cast("ThreadState", request.state)
        dropped = state.get("dropped_results")
        seen = without_results(request.messages, set(dropped)) if dropped else request.messages
        limit = token_limit(self._settings, request.model, overhead=_overhead(request))
        compacted = Compacted(seen)
        if await self._is_due(seen, limit):
            compacted = await self.compact(
                state, seen, model=request.model, limit=limit, spend=request.runtime.context.spend
            )
            _tell(request.runtime.context, compacted, state)
        for attempt in range(MAX_RETRIES):
            try:
                response = await handler(_with(request, _told(compacted, state)))
            except ContextOverflowError as error:
                if attempt == MAX_RETRIES - 1:
                    raise explain(error) or error from error
                limit = max(min(limit, estimate(compacted.messages)) // 2, LEAST_TOKENS)
                logger.warning("run %s: context overflowed, again with less", request.runtime.context.run_id)
                compacted = await self._shorter(state, compacted, request, limit)
            else:
                return _answer(response, compacted)
        raise AssertionError("the last attempt returns or raises")

    async def compact(
        self,
        state: ThreadState,
        messages: list[AnyMessage],
        *,
        model: BaseChatModel,
        limit: int,
        keep: ContextSize | None = None,
        is_forced: bool = False,
        spend: Spend = lambda name, usage: None,
    ) -> Compacted:
        """Return the conversation reduced to `limit` tokens.

        Args:
            is_forced: Summarize even if dropping old results would suffice.
            spend: Callback with the name of the summary's model, None for `model`, and its usage.
        """
        parted = split(messages, keep or self._settings.keep, window=window_of(model))
        dropped = stale_results(messages, {message.id for message in parted.kept})
        lighter = without_results(messages, set(dropped))
        if not is_forced and dropped and await self._fits(lighter, int(limit * ENOUGH_SHARE)):
            return Compacted(lighter, update={"dropped_results": _joined(state, dropped)})
        dropped = []
        if not await self._fits(parted.kept, int(limit * ENOUGH_SHARE)):
            # The kept messages are too long themselves: drop their results, then summarize their older half.
            dropped = stale_results(messages, {message.id for message in messages[-2:]})
            lighter = without_results(messages, set(dropped))
            parted = smaller(parted, split(lighter, ContextSize(type="tokens", value=max(limit // 2, 1))))
        shown = await self._fitted(parted.kept, limit)
        update: dict[str, Any] = {"dropped_results": _joined(state, dropped)} if dropped else {}
        if parted.removed:
            update |= await self._summary(state, parted.removed, model, spend)
        return Compacted(shown, parted.removed, update)

    async def _summary(
        self, state: ThreadState, removed: list[AnyMessage], model: BaseChatModel, spend: Spend
    ) -> dict[str, Any]:
        name = self._settings.model_name if self._model else None
        text = await summarise(
            removed,
            previous=state.get("summary_text") or "",
            model=self._model(name) if self._model and name else model,
            settings=self._settings,
            spend=partial(spend, name),
        )
        readers = self._settings.skill_file_read_tool_names
        return {"summary_text": text, **durable_state(removed, state, readers=readers)}

    async def _shorter(
        self, state: ThreadState, before: Compacted, request: ModelCall, limit: int
    ) -> Compacted:
        if before.removed:  # already summarized; only truncation is left
            return replace(before, messages=clipped(before.messages, limit))
        compacted = await self.compact(
            state,
            before.messages,
            model=request.model,
            limit=limit,
            is_forced=True,
            spend=request.runtime.context.spend,
        )
        _tell(request.runtime.context, compacted, state)
        return compacted

    async def _is_due(self, messages: list[AnyMessage], limit: int) -> bool:
        most = [size.value for size in self._settings.trigger if size.type == "messages"]
        if most and len(messages) >= min(most):
            return True
        return not await self._fits(messages, limit)

    async def _fits(self, messages: list[AnyMessage], limit: int) -> bool:
        return estimate(messages) <= limit or await self._counter.count(messages) <= limit

    async def _fitted(self, messages: list[AnyMessage], limit: int) -> list[AnyMessage]:
        return messages if await self._fits(messages, limit) else clipped(messages, limit)


def token_limit(settings: SummarizationSettings, model: BaseChatModel, *, overhead: int) -> int:
    """Return the number of message tokens at which a request is compacted.

    Args:
        overhead: Tokens of the rest of the request, which also count against the model's window.
    """
    window = window_of(model)
    limits = [size.value for size in settings.trigger if size.type == "tokens"]
    if window is not None:
        limits += [size.value * window for size in settings.trigger if size.type == "fraction"]
        limits.append(WINDOW_SHARE * window - overhead)
    return max(int(min(limits, default=1 << 40)), LEAST_TOKENS)


def window_of(model: BaseChatModel) -> int | None:
    """Return the model's context window in tokens, if known."""
    profile: Any = model.profile or {}
    found = profile.get("max_input_tokens")
    return found if isinstance(found, int) and found > 0 else None


def _overhead(request: ModelCall) -> int:
    """Estimate the tokens of system prompt and tools."""
    tools = sum(
        TOOL_TOKENS + len(tool.description) // 4 for tool in request.tools if isinstance(tool, BaseTool)
    )
    prompt = request.system_message
    content = prompt.content if prompt is not None else ""
    return tools + (len(content) if isinstance(content, str) else len(str(content))) // 4


def _joined(state: ThreadState, dropped: list[str]) -> list[str]:
    """Return all dropped results whose messages still exist."""
    present = {message.id for message in state["messages"]}
    return [one for one in dict.fromkeys([*(state.get("dropped_results") or ()), *dropped]) if one in present]


def _with(request: ModelCall, messages: list[AnyMessage]) -> ModelCall:
    return request if messages is request.messages else request.override(messages=messages)


def _told(compacted: Compacted, state: ThreadState) -> list[AnyMessage]:
    if not state.get("summary_text") and not compacted.update:
        return compacted.messages
    told = summary_message({**state, **compacted.update}, {message.id for message in compacted.messages})
    return compacted.messages if told is None else [told, *compacted.messages]


def _answer(response: Any, compacted: Compacted) -> ModelAnswer:
    if not compacted.update:
        return cast("ModelAnswer", response)
    # In the same list as the response: two writes to one channel would reach clients as two updates.
    gone = [RemoveMessage(id=message.id) for message in compacted.removed if message.id]
    with_removals = replace(response, result=[*gone, *response.result])
    return ExtendedModelResponse(model_response=with_removals, command=Command(update=compacted.update))


def _tell(context: RunContext, compacted: Compacted, state: ThreadState) -> None:
    """Publish to clients which messages stay, before the others are removed from the state."""
    if compacted.removed and context.task_id is None:
        context.publish_update({UPDATE_KEY: {"messages": shown_update(compacted, state["messages"])}})


def shown_update(compacted: Compacted, messages: Iterable[AnyMessage]) -> list[AnyMessage]:
    """Return the update as a node would have reported it: remove all, the summary, the kept messages."""
    gone = {message.id for message in compacted.removed}
    summary = HumanMessage(
        compacted.update["summary_text"],
        id=new_id(),
        name="summary",
        additional_kwargs={"hide_from_ui": True},
    )
    kept = [message for message in messages if message.id not in gone]
    return [cast("AnyMessage", RemoveMessage(id=REMOVE_ALL_MESSAGES)), summary, *kept]
