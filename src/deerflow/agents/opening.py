"""An agent's first answer, given without the graph around it.

Most parts of a wide fan-out are one question and one answer. A graph for each of them costs several times
what the answer itself does, so an agent whose middlewares only wrap calls can be asked directly: through the
same chain, with the same tools on offer. Where the answer asks for tools, the graph goes on from there.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    SystemMessage,
)
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore

from deerflow.agents.fold import fold_whole
from deerflow.agents.state import ThreadState
from deerflow.agents.types import Middleware, ModelCall
from deerflow.context import RunContext
from deerflow.models.quick import Hear, ask_quickly


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

        async def ask(request: ModelCall) -> ModelResponse[Any]:
            return ModelResponse(result=[await _asked(request, config, hear)])

        request: ModelCall = ModelRequest(
            model=self._model,
            messages=list(messages),
            system_message=self._prompt,
            tools=cast("list[BaseTool | dict[str, Any]]", self._tools),
            state=cast("Any", ThreadState(messages=list(messages))),
            runtime=cast("Any", Runtime(context=context, store=self._store)),
        )
        return _written(await self._chain.awrap_model_call(request, ask))


async def _asked(request: ModelCall, config: RunnableConfig, hear: Hear) -> BaseMessage:
    """Put a request to its model, as the library's own model node does."""
    settings: Mapping[str, Any] = request.model_settings
    if request.tools:
        bound = request.model.bind_tools(request.tools, tool_choice=request.tool_choice, **settings)
    else:
        bound = request.model.bind(**settings)
    prompt = [request.system_message] if request.system_message is not None else []
    return await ask_quickly(bound, [*prompt, *request.messages], config=config, hear=hear)


def _written(answer: ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]) -> dict[str, Any]:
    match answer:
        case ExtendedModelResponse(model_response=response, command=command):
            noted = dict(command.update) if command and isinstance(command.update, dict) else {}
            return {**noted, "messages": [*response.result, *noted.pop("messages", ())]}
        case ModelResponse(result=messages):
            return {"messages": messages}
        case _:
            return {"messages": [answer]}
