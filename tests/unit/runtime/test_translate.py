"""Chunks of the graph get the names that clients know."""

from typing import Any

import pytest
from langchain_core.messages import AIMessageChunk

from deerflow.runtime.translate import GraphEvent, graph_modes, is_wanted, translate

PIECE = (AIMessageChunk("x"), {"langgraph_node": "model"})


@pytest.mark.parametrize(
    ("namespace", "mode", "chunk", "expected"),
    [
        ((), "values", {"title": "t", "__pregel_tasks": [1]}, GraphEvent("values", {"title": "t"})),
        ((), "values", {"__interrupt__": ["?"]}, GraphEvent("values", {"__interrupt__": ["?"]})),
        (
            (),
            "updates",
            {"model": {"title": "t", "__pregel_x": 1}},
            GraphEvent("updates", {"model": {"title": "t"}}),
        ),
        ((), "updates", {"model": None}, GraphEvent("updates", {"model": None})),
        ((), "updates", {"model": {}, "__metadata__": {"cached": True}}, None),
        ((), "messages", PIECE, GraphEvent("messages", PIECE)),
        (("tools:1", "model:2"), "messages", PIECE, GraphEvent("messages|tools:1|model:2", PIECE)),
        ((), "custom", "anything", GraphEvent("custom", "anything")),
        ((), "debug", {"step": 1}, GraphEvent("debug", {"step": 1})),
    ],
)
def test_a_chunk_becomes_an_event(
    namespace: tuple[str, ...], mode: str, chunk: Any, expected: GraphEvent | None
) -> None:
    assert translate(namespace, mode, chunk) == expected


@pytest.mark.parametrize(
    ("kind", "modes", "is_sent"),
    [
        ("end", (), True),
        ("error", ("values",), True),
        ("metadata", ("custom",), True),
        ("messages", ("messages-tuple",), True),
        ("messages", ("messages",), True),
        ("messages", ("values",), False),
        ("messages|tools:1", ("messages-tuple",), True),
        ("updates|tools:1", ("values",), False),
        ("values", ("values", "updates"), True),
    ],
)
def test_a_reader_gets_the_modes_it_asked_for_and_the_frame_of_the_run(
    kind: str, modes: tuple[str, ...], is_sent: bool
) -> None:
    assert is_wanted(kind, frozenset(modes)) is is_sent


def test_the_graph_always_runs_with_what_the_log_keeps() -> None:
    assert graph_modes(("values",)) == ["values", "messages", "updates", "custom"]
    assert graph_modes(("debug", "messages-tuple"))[4:] == ["debug"]
