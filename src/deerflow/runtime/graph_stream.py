"""Runs a graph: its stream in one form for all modes, without the output of failed model calls.

An attempt at a model call that fails midway has streamed its beginning. When the next attempt begins to
stream, that beginning is withdrawn with a `remove` message, which LangGraph's clients support; until then,
and when no attempt gets further, it stays.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import RunControl

from deerflow.agents.langgraph_beta import MODEL_NODE
from deerflow.context import RunContext
from deerflow.domain import RunRequest
from deerflow.runtime.translate import graph_modes

Graph = CompiledStateGraph[Any, Any, Any, Any]
Part = tuple[tuple[str, ...], str, Any]
"""Namespace, mode and chunk."""


async def graph_parts(
    graph: Graph,
    values: Any,
    config: RunnableConfig,
    request: RunRequest,
    context: RunContext,
    control: RunControl,
) -> AsyncIterator[Part]:
    """Run the graph on `values` with the request's options, until it ends, interrupts or is drained."""
    options: dict[str, Any] = {
        "context": context,
        "stream_mode": graph_modes(request.stream_modes),
        "subgraphs": True,
        "durability": request.durability,
        "interrupt_before": _nodes(request.interrupt_before),
        "interrupt_after": _nodes(request.interrupt_after),
        "control": control,
    }
    if "events" in request.stream_modes:
        async for part in _with_events(graph, values, config, options):
            yield part
        return
    async for chunk in graph.astream(values, config, **options):
        yield cast(Part, chunk)


async def _with_events(
    graph: Graph, values: Any, config: RunnableConfig, options: dict[str, Any]
) -> AsyncIterator[Part]:
    """Yield every callback event too; the graph's own chunks are inside the events of its root."""
    async for event in graph.astream_events(values, config, version="v2", **options):
        is_root = not event.get("parent_ids")
        if is_root and event["event"] == "on_chain_stream":
            yield cast(Part, event["data"]["chunk"])
        else:
            yield (), "events", event


def _nodes(names: Any) -> Any:
    return names if names == "*" else list(names) or None


class StreamedAnswer:
    """The lead agent's answer that is being streamed."""

    def __init__(self) -> None:
        self._id: str | None = None
        self._is_whole = False
        self._was_retried = False

    def retry(self) -> None:
        self._was_retried = True

    def settle(self) -> None:
        """Record that the step is done: the streamed answer is in the thread."""
        self._id, self._is_whole, self._was_retried = None, False, False

    def take(self, message: BaseMessage, metadata: Mapping[str, Any]) -> RemoveMessage | None:
        """Return the withdrawal of an earlier attempt to send before this message or chunk, if any."""
        if not isinstance(message, AIMessage) or metadata.get("langgraph_node") != MODEL_NODE:
            return None
        if message.id == self._id or not message.id:
            self._is_whole = self._is_whole or _is_last(message)
            return None
        earlier, was_whole = self._id, self._is_whole
        self._id, self._is_whole = message.id, _is_last(message)
        if earlier is None or was_whole:
            return None
        # A fallback answers the same call: its id is the call's id with a suffix.
        if not self._was_retried and not message.id.startswith(earlier):
            return None
        self._was_retried = False
        return RemoveMessage(id=earlier)


def _is_last(message: AIMessage) -> bool:
    return not isinstance(message, AIMessageChunk) or message.chunk_position == "last"
