"""Gets an agent's first model response without running its graph.

Most tasks of a wide fan-out are one question and one answer. Running a graph for each costs several times as
much as the model call. An agent whose middlewares only wrap calls can therefore be called directly, through
the same middlewares and with the same tools. If the response has tool calls, the graph continues from there.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

from langchain.agents.middleware import ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    SystemMessage,
)
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore

from deerflow.agents.combine_middlewares import fold_whole
from deerflow.agents.request import QuickRequest
from deerflow.agents.state import ThreadState
from deerflow.agents.types import Middleware, ModelCall
from deerflow.context import RunContext
from deerflow.models.direct_call import Hear, ask_quickly

BoundModel = Runnable[LanguageModelInput, AIMessage]


class FirstAnswer:
    """Calls an agent's model for the first response of a conversation; concurrent runs may share one."""

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
        self._last: tuple[ModelCall, BoundModel] | None = None
        """The last request, without messages and state, and the model bound for it."""

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
        """Return the first answer of an agent with these parts; None if the agent needs its graph."""
        chain = fold_whole(middlewares)
        if chain is None:
            return None
        return cls(model, system_prompt=system_prompt, tools=tools, chain=chain, store=store)

    async def answer(
        self, messages: Sequence[AnyMessage], *, context: RunContext, config: RunnableConfig, hear: Hear
    ) -> dict[str, Any]:
        """Return the first step's state update: the response and the middlewares' updates."""

        async def ask(request: ModelCall) -> ModelResponse[Any]:
            prompt = [request.system_message] if request.system_message is not None else []
            said = [*prompt, *request.messages]
            return ModelResponse(
                result=[await ask_quickly(self._bound(request), said, config=config, hear=hear)]
            )

        request = QuickRequest.made(
            model=self._model,
            messages=list(messages),
            system_message=self._prompt,
            tools=self._tools,
            state=ThreadState(messages=list(messages)),
            runtime=Runtime(context=context, store=self._store),
        )
        return _written(await self._chain.awrap_model_call(request, ask))

    def _bound(self, request: ModelCall) -> BoundModel:
        """Return the bound model; cached, since consecutive tasks mostly bind the same tools and settings."""
        last = self._last
        if last is None or not _is_as_before(request, last[0]):
            last = self._last = request.override(messages=[], state=cast("Any", {})), _bind(request)
        return last[1]


def _bind(request: ModelCall) -> BoundModel:
    """Bind tools and settings to the model of a request, as LangChain's model node does."""
    settings: Mapping[str, Any] = request.model_settings
    if request.tools:
        return request.model.bind_tools(request.tools, tool_choice=request.tool_choice, **settings)
    return request.model.bind(**settings)


def _is_as_before(request: ModelCall, before: ModelCall) -> bool:
    """Return whether two requests have the identical model, tools and settings."""
    return (
        request.model is before.model
        and request.tool_choice == before.tool_choice
        and request.model_settings == before.model_settings
        and len(request.tools) == len(before.tools)
        and all(mine is other for mine, other in zip(request.tools, before.tools, strict=True))
    )


def _written(answer: ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]) -> dict[str, Any]:
    match answer:
        case ExtendedModelResponse(model_response=response, command=command):
            noted = dict(command.update) if command and isinstance(command.update, dict) else {}
            return {**noted, "messages": [*response.result, *noted.pop("messages", ())]}
        case ModelResponse(result=messages):
            return {"messages": messages}
        case _:
            return {"messages": [answer]}
