"""A chat model with stand-ins: when the first fails, the next one answers the same call."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
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
Tool = dict[str, Any] | type | Callable[..., Any] | BaseTool


class FallbackChatModel(BaseChatModel):
    """Asks its members in order until one answers.

    An `ainvoke`, also one whose tokens are streamed through callbacks as agents do it, is redone on the
    next member even when the failure comes after some tokens: its result is the answer of one member,
    whole. Those who iterate `astream` themselves have already seen the first tokens, so there a late
    failure is theirs to handle.
    """

    members: tuple[BaseChatModel, ...]
    names: tuple[str, ...]

    @property
    @override
    def _llm_type(self) -> str:
        return "fallback"

    @override
    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return self.members[0]._get_ls_params(stop=stop, **kwargs)

    @override
    def bind_tools(
        self, tools: Sequence[Tool], *, tool_choice: str | None = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools in a form that every provider reads; each member binds them its own way when asked."""
        if tool_choice is not None:
            kwargs["tool_choice"] = tool_choice
        formatted = [tool if isinstance(tool, dict) else convert_to_openai_tool(tool) for tool in tools]
        return self.bind(tools=formatted, **kwargs)

    # These two are where LangChain decides whether a call streams. Going through them, and not through
    # `_agenerate`, keeps each member's own streaming, cache and rate limit.
    @override
    async def _agenerate_with_cache(
        self,
        messages: Messages,
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
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
    def _generate_with_cache(
        self,
        messages: Messages,
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        failures = _Failures(self.names)
        for member in self.members:
            with failures:
                return member._generate_with_cache(
                    messages, stop=stop, run_manager=run_manager, **_arguments(member, kwargs)
                )
        raise failures.first()

    @override
    def _generate(
        self,
        messages: Messages,
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._generate_with_cache(messages, stop, run_manager, **kwargs)

    @override
    async def _agenerate(
        self,
        messages: Messages,
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return await self._agenerate_with_cache(messages, stop, run_manager, **kwargs)

    @override
    async def _astream(
        self,
        messages: Messages,
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
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

    @override
    def _stream(
        self,
        messages: Messages,
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        failures = _Failures(self.names)
        for member in self.members:
            with failures:
                for chunk in member._stream(messages, stop, run_manager, **_arguments(member, kwargs)):
                    failures.are_final = True
                    yield chunk
                return
        raise failures.first()


class _Failures:
    """What went wrong so far in one call: a member's failure inside the block is noted, and ends there."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._errors: list[Exception] = []
        self.are_final = False
        """From now on a failure is the caller's: what was shown cannot be taken back."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        # Whatever a provider's SDK raises, the next member may do better.
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
        """Return the first model's error, which is the one to act on, noting what the others said."""
        first, *others = self._errors
        for name, error in zip(self._names[1:], others, strict=True):
            first.add_note(f"its fallback {name} failed too: {error}")
        return first


def _renaming(manager: AsyncCallbackManagerForLLMRun, number: int) -> AsyncCallbackManagerForLLMRun:
    """Return a copy of a manager that gives a fallback's streamed answer an id of its own.

    Under the id of the call its pieces would be joined to what the member before had shown of its answer.
    """

    async def on_llm_new_token(token: Any, *, chunk: Any = None, **kwargs: Any) -> None:
        if chunk is not None and chunk.message.id:
            chunk.message.id = f"{chunk.message.id}-fallback{number}"
        await manager.on_llm_new_token(token, chunk=chunk, **kwargs)

    renaming = copy(manager)
    renaming.on_llm_new_token = on_llm_new_token  # type: ignore[method-assign]
    return renaming


def _arguments(member: BaseChatModel, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the call's arguments as this member wants them: tools look different to each provider."""
    if "tools" not in kwargs:
        return dict(kwargs)
    rest = {key: value for key, value in kwargs.items() if key != "tools"}
    bound = member.bind_tools(kwargs["tools"], **rest)
    return dict(bound.kwargs) if isinstance(bound, RunnableBinding) else dict(kwargs)
