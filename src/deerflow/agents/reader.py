"""Reads and edits a thread's state without building the agent that wrote it.

The reader is an agent of its own, compiled once, whose model is never called: it has the nodes and edges
of the real ones, so that `next` and `tasks` of a thread that stopped halfway come out the same.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, BaseMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import StateSnapshot, StateUpdate
from typing_extensions import override

from deerflow.agents.factory import build_agent
from deerflow.agents.langgraph_beta import INPUT_NODE, MODEL_NODE, set_in_place
from deerflow.agents.middlewares import ToolErrorMiddleware, TurnStartMiddleware
from deerflow.config import TitleSettings

START_NODE = f"{TurnStartMiddleware.__name__}.before_agent"
"""The node that a turn begins with; its only successor is the model."""


class StateReader:
    """The states of all threads of one database."""

    def __init__(self, checkpointer: BaseCheckpointSaver[Any]) -> None:
        self._checkpointer = checkpointer
        self._graph = build_agent(
            _SilentModel(),
            name="reader",
            system_prompt="",
            tools=(),
            # The first brings the chain's one node, the second the `tools` node.
            middlewares=(TurnStartMiddleware(title=TitleSettings()), ToolErrorMiddleware()),
            checkpointer=checkpointer,
        )

    def graph(self, *, xray: bool | int = False) -> dict[str, Any]:
        """Return the nodes and edges that all agents have."""
        return self._graph.get_graph(xray=xray).to_json()

    def schemas(self) -> dict[str, Any]:
        """Return the shapes of input, output and context, as JSON schemas."""
        shapes = {"input": self._graph.get_input_jsonschema(), "output": self._graph.get_output_jsonschema()}
        return {f"{name}_schema": shape for name, shape in shapes.items()}

    async def state(self, config: RunnableConfig, *, subgraphs: bool = False) -> StateSnapshot:
        """Return the state at `config`: the thread's latest, or that of its `checkpoint_id`."""
        return await self._graph.aget_state(config, subgraphs=subgraphs)

    def history(
        self,
        config: RunnableConfig,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002  # the word of LangGraph
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[StateSnapshot]:
        """Return the thread's states, newest first."""
        wanted = None if filter is None else dict(filter)
        return self._graph.aget_state_history(config, filter=wanted, before=before, limit=limit)

    async def update(
        self, config: RunnableConfig, values: Mapping[str, Any] | None, *, as_node: str | None = None
    ) -> RunnableConfig:
        """Write `values` as if `as_node` had; returns the config of the new checkpoint."""
        return await self._graph.aupdate_state(config, None if values is None else dict(values), as_node)

    async def add_input(self, config: RunnableConfig, messages: Sequence[AnyMessage]) -> None:
        """Store what a turn begins with, as a run does first."""
        await self._graph.aupdate_state(config, {"messages": list(messages)}, INPUT_NODE)

    async def add_start(self, config: RunnableConfig, result: Mapping[str, Any]) -> None:
        """Store the step of a turn's first node, of which only what the node returned was stored.

        Anything else that is written in the node's name there is taken for a second copy, and dropped.
        """
        await self._graph.aupdate_state(config, dict(result), START_NODE)

    async def add_before_model(self, config: RunnableConfig, messages: Sequence[AnyMessage]) -> None:
        """Add messages to a thread that stopped in a model call; that call is still what comes next."""
        await self._graph.aupdate_state(config, {"messages": list(messages)}, START_NODE)

    async def add_finished(self, config: RunnableConfig, results: Sequence[Mapping[str, Any]]) -> None:
        """Add what calls of a step returned that stopped before the others did; those are what comes next."""
        steps = [[StateUpdate(dict(result), MODEL_NODE)] for result in results]
        await self._graph.abulk_update_state(config, steps)

    async def set_in_place(self, config: RunnableConfig, values: Mapping[str, Any]) -> None:
        """Set `values` where the thread stands, leaving alone what waits there."""
        await set_in_place(self._checkpointer, config, values)


class _SilentModel(BaseChatModel):
    """Stands where an agent has its model; nothing ever calls it."""

    @property
    @override
    def _llm_type(self) -> str:
        return "silent"

    @override
    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise NotImplementedError("the state reader has no model")
