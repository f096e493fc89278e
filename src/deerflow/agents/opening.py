"""An agent's first answer, given without the graph around it.

Most parts of a wide fan-out are one question and one answer. A graph for each of them costs several times
what the answer itself does, so an agent whose middlewares only wrap calls can be asked directly: through the
same chain, with the same tools on offer. Where the answer asks for tools, the graph goes on from there.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Self, cast
from uuid import UUID

from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, SystemMessage
from langchain_core.outputs import ChatGenerationChunk, GenerationChunk
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from typing_extensions import override

from deerflow.agents.fold import fold_whole
from deerflow.agents.state import ThreadState
from deerflow.agents.types import Middleware, ModelCall
from deerflow.context import RunContext

Hear = Callable[[str], None]
"""Takes the words of an answer while it is given."""


class Opening:
    """Asks an agent's model for the first answer of a conversation; many runs may share one."""

    def __init__(
        self,
        model: BaseChatModel,
        *,
        system_prompt: str,
        tools: Sequence[BaseTool],
        chain: Middleware,
        store: BaseStore | None,
    ) -> None:
        self._model = model
        self._prompt = SystemMessage(system_prompt) if system_prompt else None
        self._tools = list(tools)
        self._chain = chain
        self._store = store

    @classmethod
    def of(
        cls,
        model: BaseChatModel,
        *,
        system_prompt: str,
        tools: Sequence[BaseTool],
        middlewares: Sequence[Middleware],
        store: BaseStore | None = None,
    ) -> Self | None:
        """Return the opening of an agent of these parts; None when it needs its graph from the start."""
        chain = fold_whole(middlewares)
        if chain is None:
            return None
        return cls(model, system_prompt=system_prompt, tools=tools, chain=chain, store=store)

    async def answer(
        self, messages: Sequence[AnyMessage], *, context: RunContext, config: RunnableConfig, hear: Hear
    ) -> dict[str, Any]:
        """Return what the first step writes to the state: the answer, and what the middlewares noted."""
        heard = cast("RunnableConfig", {**config, "callbacks": [*_handlers(config), _Ear(hear)]})

        async def ask(request: ModelCall) -> ModelResponse[Any]:
            return ModelResponse(result=[await _asked(request, heard)])

        request: ModelCall = ModelRequest(
            model=self._model,
            messages=list(messages),
            system_message=self._prompt,
            tools=cast("list[BaseTool | dict[str, Any]]", self._tools),
            state=cast("Any", ThreadState(messages=list(messages))),
            runtime=cast("Any", Runtime(context=context, store=self._store)),
        )
        return _written(await self._chain.awrap_model_call(request, ask))


async def _asked(request: ModelCall, config: RunnableConfig) -> BaseMessage:
    """Put a request to its model, as the library's own model node does."""
    settings: Mapping[str, Any] = request.model_settings
    if request.tools:
        bound = request.model.bind_tools(request.tools, tool_choice=request.tool_choice, **settings)
    else:
        bound = request.model.bind(**settings)
    prompt = [request.system_message] if request.system_message is not None else []
    return await bound.ainvoke([*prompt, *request.messages], config)


def _written(answer: ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]) -> dict[str, Any]:
    match answer:
        case ExtendedModelResponse(model_response=response, command=command):
            noted = dict(command.update) if command and isinstance(command.update, dict) else {}
            return {**noted, "messages": [*response.result, *noted.pop("messages", ())]}
        case ModelResponse(result=messages):
            return {"messages": messages}
        case _:
            return {"messages": [answer]}


def _handlers(config: RunnableConfig) -> list[BaseCallbackHandler]:
    given = config.get("callbacks")
    return given if isinstance(given, list) else given.handlers if given is not None else []


class _Ear(BaseCallbackHandler):
    """Passes on the words of an answer as they come."""

    run_inline = True

    def __init__(self, hear: Hear) -> None:
        self._hear = hear

    @override
    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        pass

    @override
    def on_llm_new_token(
        self,
        token: Any,
        *,
        chunk: GenerationChunk | ChatGenerationChunk | None = None,
        **_: Any,
    ) -> None:
        if isinstance(chunk, ChatGenerationChunk):
            self._hear(str(chunk.message.text))

    # Models stream where a handler has these two; nothing else is asked of them.
    def tap_output_aiter(self, run_id: UUID, output: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Return what a chain puts out, as it is."""
        return output

    def tap_output_iter(self, run_id: UUID, output: Iterator[Any]) -> Iterator[Any]:
        """Return what a chain puts out, as it is."""
        return output
