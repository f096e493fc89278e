"""Reads and edits a thread's state without building the agent that wrote it.

The reader compiles its own agent once, whose model is never called. It has the nodes and edges of the real
agents, so that `next` and `tasks` of an interrupted thread are the same.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AnyMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.constants import START
from langgraph.types import StateSnapshot, StateUpdate

from deerflow.agents.factory import build_agent
from deerflow.agents.langgraph_beta import INPUT_NODE, MODEL_NODE, set_in_place
from deerflow.agents.middlewares.tool_failures import ToolErrorMiddleware
from deerflow.agents.middlewares.turn_start import TurnStartMiddleware
from deerflow.config import TitleSettings

START_NODE = f"{TurnStartMiddleware.__name__}.before_agent"
"""The first node of a turn; its only successor is the model node."""


class StateReader:
    """Reads and writes the states of all threads of one checkpointer."""

    def __init__(self, checkpointer: BaseCheckpointSaver[Any]) -> None:
        self._checkpointer = checkpointer
        self._graph = build_agent(
            FakeListChatModel(responses=[]),  # never called
            name="reader",
            system_prompt="",
            tools=(),
            # The first adds the only middleware node, the second the `tools` node.
            middlewares=(TurnStartMiddleware(title=TitleSettings()), ToolErrorMiddleware()),
            checkpointer=checkpointer,
        )

    def graph(self, *, xray: bool | int = False) -> dict[str, Any]:
        """Return the nodes and edges that all agents share."""
        return self._graph.get_graph(xray=xray).to_json()

    def schemas(self) -> dict[str, Any]:
        """Return the JSON schemas of input and output."""
        shapes = {"input": self._graph.get_input_jsonschema(), "output": self._graph.get_output_jsonschema()}
        return {f"{name}_schema": shape for name, shape in shapes.items()}

    async def state(self, config: RunnableConfig, *, subgraphs: bool = False) -> StateSnapshot:
        """Return the state at `config`: the thread's latest, or the one of its `checkpoint_id`."""
        return await self._graph.aget_state(config, subgraphs=subgraphs)

    def history(
        self,
        config: RunnableConfig,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002  # LangGraph's parameter name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[StateSnapshot]:
        """Return the thread's states, newest first."""
        wanted = None if filter is None else dict(filter)
        return self._graph.aget_state_history(config, filter=wanted, before=before, limit=limit)

    async def update(
        self, config: RunnableConfig, values: Mapping[str, Any] | None, *, as_node: str | None = None
    ) -> RunnableConfig:
        """Write `values` as if `as_node` had; return the config of the new checkpoint."""
        return await self._graph.aupdate_state(config, None if values is None else dict(values), as_node)

    async def add_input(self, config: RunnableConfig, messages: Sequence[AnyMessage]) -> None:
        """Store a turn's input messages, as the first step of a run does."""
        await self._graph.aupdate_state(config, {"messages": list(messages)}, INPUT_NODE)

    async def apply_input(self, config: RunnableConfig) -> None:
        """Apply the input that a checkpoint holds, as the next step of its run would have done."""
        found = await self._checkpointer.aget_tuple(config)
        assert found is not None, "only a stored input can be applied"
        await self._graph.aupdate_state(config, found.checkpoint["channel_values"][START], START)

    async def add_start(self, config: RunnableConfig, result: Mapping[str, Any]) -> None:
        """Store the step of a turn's first node, of which only the pending writes were stored.

        Any other write in the name of that node is treated as a duplicate and dropped.
        """
        await self._graph.aupdate_state(config, dict(result), START_NODE)

    async def add_before_model(
        self, config: RunnableConfig, messages: Sequence[AnyMessage | RemoveMessage]
    ) -> None:
        """Add or remove messages of a thread that stopped in a model call, which remains the next step."""
        await self._graph.aupdate_state(config, {"messages": list(messages)}, START_NODE)

    async def add_finished(
        self, config: RunnableConfig, results: Sequence[Mapping[str, Any]], *, is_whole: bool
    ) -> None:
        """Store the results of a step's finished tool calls; its unfinished calls remain the next step.

        Args:
            is_whole: No call is unfinished, so that the model is the next step.
        """
        nodes = [MODEL_NODE] * (len(results) - 1) + [START_NODE if is_whole else MODEL_NODE]
        steps = [[StateUpdate(dict(result), node)] for result, node in zip(results, nodes, strict=True)]
        await self._graph.abulk_update_state(config, steps)

    async def set_in_place(self, config: RunnableConfig, values: Mapping[str, Any]) -> None:
        """Set `values` in the latest checkpoint without affecting its pending tasks."""
        await set_in_place(self._checkpointer, config, values)
