"""Runs a graph and yields its stream in one form for all stream modes."""

from collections.abc import AsyncIterator
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import RunControl

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
