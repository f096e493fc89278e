"""What was read of a thread is handed out again, as long as it is what the database holds."""

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deerflow.storage.sql.message_cache import Recollection
from deerflow.storage.sql.serializer import StrictSerializer

CALL = {"name": "ls", "args": {"path": "/a"}, "id": "c1", "type": "tool_call"}
SAID: list[AnyMessage] = [
    HumanMessage("Look around.", id="1"),
    AIMessage("", id="2", tool_calls=[CALL]),
    ToolMessage("nothing", id="3", tool_call_id="c1"),
    AIMessage([{"type": "text", "text": "Nothing there."}], id="4", response_metadata={"model": "m"}),
]
SERDE = StrictSerializer()


def stored(messages: list[AnyMessage]) -> bytes:
    return SERDE.dumps_typed(_DeltaSnapshot(messages))[1]


def build(body: bytes) -> Any:
    return SERDE.loads_typed(("msgpack", body))


def read(recollection: Recollection, messages: list[AnyMessage], key: str = "t1") -> list[AnyMessage]:
    value: list[AnyMessage] = recollection.value(key, stored(messages), build).value
    return value


def is_same(one: list[AnyMessage], other: list[AnyMessage]) -> bool:
    return all(mine is theirs for mine, theirs in zip(one, other, strict=True))


def test_the_same_bytes_of_a_thread_are_the_same_messages() -> None:
    recollection = Recollection()

    first = read(recollection, SAID)
    again = read(recollection, SAID)

    assert first == SAID
    assert is_same(first, again)


def test_bytes_that_changed_are_read_anew() -> None:
    recollection = Recollection()
    read(recollection, SAID)

    shorter = read(recollection, SAID[:1])

    assert shorter == SAID[:1]


def test_the_same_bytes_of_another_thread_are_messages_of_its_own() -> None:
    recollection = Recollection()

    mine, other = read(recollection, SAID), read(recollection, SAID, "t2")

    assert other == SAID
    assert not any(one is two for one, two in zip(mine, other, strict=True))


CHANGES: dict[str, Callable[[list[AnyMessage]], object]] = {
    "words": lambda said: setattr(said[0], "content", "Forget it."),
    "an id": lambda said: setattr(said[2], "id", "other"),
    "a mark beside the words": lambda said: said[0].additional_kwargs.update(seen=True),
    "a block": lambda said: said[3].content[0].update(cache_control={"type": "ephemeral"}),  # type: ignore[union-attr]
    "an argument": lambda said: said[1].tool_calls[0]["args"].update(path="/b"),  # type: ignore[union-attr]
    "what was returned": lambda said: setattr(said[2], "artifact", object()),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_a_run_changed_in_place_is_not_handed_out_again(
    change: Callable[[list[AnyMessage]], object],
) -> None:
    recollection = Recollection()
    change(read(recollection, SAID))

    again = read(recollection, SAID)

    assert again == SAID


def test_whoever_changes_the_list_changes_only_their_own() -> None:
    recollection = Recollection()
    read(recollection, SAID).clear()

    assert read(recollection, SAID) == SAID


@pytest.mark.parametrize(
    "value", [{"a": 1}, _DeltaSnapshot({"a": 1}), _DeltaSnapshot(["plain"]), _DeltaSnapshot([])]
)
def test_other_values_are_what_is_stored(value: Any) -> None:
    recollection, body = Recollection(), SERDE.dumps_typed(value)[1]

    found = [recollection.value("t1", body, build) for _ in range(2)]

    assert found == [value, value]


def test_of_too_many_threads_the_oldest_are_read_anew() -> None:
    recollection = Recollection(most_bytes=30_000)  # room for three
    first = {key: read(recollection, SAID, key) for key in ("a", "b", "c", "d")}

    assert is_same(read(recollection, SAID, "d"), first["d"])
    assert not is_same(read(recollection, SAID, "a"), first["a"])


def test_a_conversation_that_is_too_long_is_read_anew_each_time() -> None:
    recollection = Recollection(most_bytes=100)

    assert read(recollection, SAID) == read(recollection, SAID) == SAID
