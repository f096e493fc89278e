"""A chat model with fallbacks: when one model fails, the next one answers the same call."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableBinding
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from typing_extensions import override

logger = logging.getLogger(__name__)

Messages = list[BaseMessage]
Stop = list[str] | None
AsyncManager = AsyncCallbackManagerForLLMRun | None
SyncManager = CallbackManagerForLLMRun | None
Tool = dict[str, Any] | type | Callable[..., Any] | BaseTool


def can_reason(model: BaseChatModel) -> bool:
    """Return whether a model can plan, judge and summarize.

    The offline model, which follows fixed rules, cannot. A class says so with a `can_reason` of False;
    one that says nothing can.
    """
    return bool(getattr(model, "can_reason", True))


class FallbackChatModel(BaseChatModel):
    """Calls its members in order until one answers.

    An `ainvoke`, including one that streams tokens through callbacks as agents do, is repeated on the next
    member even if the failure comes after some tokens: its result is the complete answer of one member. A
    caller that iterates `astream` has already received the first tokens, so it must handle a late failure.
    """

    members: tuple[BaseChatModel, ...]
    names: tuple[str, ...]

    @property
    @override
    def _llm_type(self) -> str:
        return "fallback"

    @property
    def can_reason(self) -> bool:
        """Whether any member can reason, see `can_reason`."""
        return any(map(can_reason, self.members))

    @override
    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return self.members[0]._get_ls_params(stop=stop, **kwargs)

    @override
    def bind_tools(
        self, tools: Sequence[Tool], *, tool_choice: str | None = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools in a provider-neutral form; each member converts them when it is called."""
        if tool_choice is not None:
            kwargs["tool_choice"] = tool_choice
        formatted = [tool if isinstance(tool, dict) else convert_to_openai_tool(tool) for tool in tools]
        return self.bind(tools=formatted, **kwargs)

    # LangChain decides here whether a call streams. Overriding this method instead of `_agenerate` keeps each
    # member's own streaming, cache and rate limit.
    @override
    async def _agenerate_with_cache(
        self, messages: Messages, stop: Stop = None, run_manager: AsyncManager = None, **kwargs: Any
    ) -> ChatResult:
        failures = _Failures(self.names)
        for number, member in enumerate(self.members):
            manager = _renaming(run_manager, number) if number and run_manager else run_manager
            with failures:
                return await member._agenerate_with_cache(
                    messages, stop=stop, run_manager=manager, **_arguments(member, kwargs)
                )
        raise failures.first()

    @override
    def _generate(
        self, messages: Messages, stop: Stop = None, run_manager: SyncManager = None, **kwargs: Any
    ) -> ChatResult:
        failures = _Failures(self.names)
        for member in self.members:
            with failures:
                return member._generate_with_cache(messages, stop, run_manager, **_arguments(member, kwargs))
        raise failures.first()

    @override
    async def _astream(
        self, messages: Messages, stop: Stop = None, run_manager: AsyncManager = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        failures = _Failures(self.names)
        for member in self.members:
            with failures:
                answer = member._astream(messages, stop, run_manager, **_arguments(member, kwargs))
                async with aclosing(answer) as chunks:  # type: ignore[type-var]
                    async for chunk in chunks:
                        failures.are_final = True
                        yield chunk
                return
        raise failures.first()


class _Failures:
    """Context manager that records and suppresses the failures of the members during one call."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._errors: list[Exception] = []
        self.are_final = False
        """Set once tokens were emitted, which cannot be retracted: later failures reach the caller."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        # Any exception of a provider's SDK counts: the next member may succeed.
        if self.are_final or not isinstance(error, Exception):
            return False
        self._add(error)
        return True

    def _add(self, error: Exception) -> None:
        number = len(self._errors)
        self._errors.append(error)
        if number + 1 < len(self._names):
            logger.warning(
                "model %s failed (%s), going on with %s",
                self._names[number],
                type(error).__name__,
                self._names[number + 1],
            )

    def first(self) -> Exception:
        """Return the first model's error, the one to act on, with the other errors as notes."""
        first, *others = self._errors
        for name, error in zip(self._names[1:], others, strict=True):
            first.add_note(f"its fallback {name} failed too: {error}")
        return first


def _renaming(manager: AsyncCallbackManagerForLLMRun, number: int) -> AsyncCallbackManagerForLLMRun:
    """Return a copy of a callback manager that gives a fallback's streamed answer a separate message id.

    With the id of the call, its chunks would be appended to those of the failed member.
    """

    async def on_llm_new_token(token: Any, *, chunk: Any = None, **kwargs: Any) -> None:
        if chunk is not None and chunk.message.id:
            chunk.message.id = f"{chunk.message.id}-fallback{number}"
        await manager.on_llm_new_token(token, chunk=chunk, **kwargs)

    renaming = copy(manager)
    renaming.on_llm_new_token = on_llm_new_token  # type: ignore[method-assign]
    return renaming


def _arguments(member: BaseChatModel, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the call's arguments in this member's format: each provider has its own tool format."""
    if "tools" not in kwargs:
        return dict(kwargs)
    rest = {key: value for key, value in kwargs.items() if key != "tools"}
    bound = member.bind_tools(kwargs["tools"], **rest)
    return dict(bound.kwargs) if isinstance(bound, RunnableBinding) else dict(kwargs)
