"""Contract with LangGraph's private names: our serializer reads what its own reads, ids keep their order."""

import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import ormsgpack
import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command, Interrupt, Overwrite, Send
from pydantic import BaseModel

from deerflow.domain import RunOptions
from deerflow.storage.langgraph_private import DeltaSnapshot, StrictSerializer, advance_id_clock

HOUR_NS = 3600 * 10**9
CALL = {"name": "bash", "args": {"command": "ls", "deep": [1, None]}, "id": "call-1"}
MESSAGES: list[BaseMessage] = [
    HumanMessage("hi", id="m1"),
    HumanMessage(
        [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:,"}}], name="ann"
    ),
    AIMessage(
        "",
        id="m2",
        tool_calls=[CALL],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    ),
    AIMessage(
        "x", additional_kwargs={"reasoning_content": "hm"}, response_metadata={"at": datetime.now(UTC)}
    ),
    ToolMessage("done", tool_call_id="call-1", artifact={"files": ["a"]}, status="error", id="m3"),
    SystemMessage("be kind"),
    RemoveMessage("m1"),
    AIMessageChunk("part", id="m4"),
    HumanMessage("extra", unknown_field=7),
]


class Unknown(BaseModel):
    x: int


@pytest.mark.parametrize(
    "value",
    [
        *MESSAGES,
        MESSAGES,
        {"messages": MESSAGES, "n": [1, 2.5, None, True, b"bytes", "鹿"]},
        DeltaSnapshot(MESSAGES),
        Overwrite(MESSAGES),
        Send("tools", {"call": MESSAGES[2]}),
        Command(resume={"a": 1}, update={"messages": MESSAGES}),
        [Interrupt("why?", id="i1")],
        {UUID(int=5): {1, 2}, 7: datetime.now(UTC)},
        None,
        b"raw",
    ],
)
def test_it_reads_what_langgraphs_own_reads(value: Any) -> None:
    mine, theirs = StrictSerializer(), JsonPlusSerializer(allowed_msgpack_modules=None)
    dumped = mine.dumps_typed(value)

    read = mine.loads_typed(dumped)

    assert dumped == theirs.dumps_typed(value)
    assert read == theirs.loads_typed(dumped)
    assert type(read) is type(theirs.loads_typed(dumped))


def test_a_decoded_message_behaves_like_a_constructed_one() -> None:
    made = MESSAGES[2]
    serializer = StrictSerializer()

    read = serializer.loads_typed(serializer.dumps_typed([made]))[0]
    other = serializer.loads_typed(serializer.dumps_typed([made]))[0]

    assert isinstance(read, AIMessage)
    assert read.model_dump() == made.model_dump()
    assert read.model_copy(update={"content": "new"}).content == "new"
    read.content = "changed"
    read.tool_calls[0]["args"]["command"] = "rm"
    assert other == made
    assert read.text == "changed"


def test_types_that_are_not_allowed_are_decoded_as_plain_data() -> None:
    serializer = StrictSerializer()
    allowing = StrictSerializer([("deerflow.domain.runs", "RunOptions")])
    value = {"options": RunOptions(mode="pro"), "model": Unknown(x=1)}
    dumped = serializer.dumps_typed(value)

    strict, allowed = serializer.loads_typed(dumped), allowing.loads_typed(dumped)

    assert strict["options"]["mode"] == "pro"
    assert isinstance(strict["options"], dict)
    assert strict["model"] == {"x": 1}
    assert allowed["options"] == RunOptions(mode="pro")


def test_nothing_is_pickled_or_imported_from_the_database() -> None:
    serializer = StrictSerializer()
    evil = ormsgpack.packb(ormsgpack.Ext(1, ormsgpack.packb(("os", "system", ("true",)))))

    assert serializer.loads_typed(("msgpack", evil)) == ["true"]
    with pytest.raises(NotImplementedError):
        serializer.loads_typed(("pickle", b"cos\nsystem\n(S'true'\ntR."))
    with pytest.raises(TypeError):
        serializer.dumps_typed(object())


@pytest.fixture
def own_id_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep these ids from the ids of other tests."""
    monkeypatch.setattr("langgraph.checkpoint.base.id._last_v6_timestamp", None)


def an_hour_ahead(monkeypatch: pytest.MonkeyPatch) -> str:
    ahead = time.time_ns() + HOUR_NS
    with monkeypatch.context() as there:
        there.setattr(time, "time_ns", lambda: ahead)
        there.setattr("langgraph.checkpoint.base.id._last_v6_timestamp", None)
        return str(uuid6(clock_seq=3))


@pytest.mark.usefixtures("own_id_clock")
def test_ids_are_larger_than_one_of_a_faster_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = an_hour_ahead(monkeypatch)

    advance_id_clock(seen)
    first, second = str(uuid6(clock_seq=-1)), str(uuid6(clock_seq=0))

    assert seen < first < second


@pytest.mark.usefixtures("own_id_clock")
def test_an_older_id_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, old = an_hour_ahead(monkeypatch), str(uuid6())

    advance_id_clock(seen)
    advance_id_clock(old)

    assert str(uuid6()) > seen


@pytest.mark.parametrize(
    "other", ["ffffffff-ffff-ffff-ffff-ffffffffffff", "4ad1c7a4-9081-470f-848e-1ff6bb108785", "first", ""]
)
@pytest.mark.usefixtures("own_id_clock")
def test_an_id_that_is_not_derived_from_the_time_changes_nothing(other: str) -> None:
    before = str(uuid6())

    advance_id_clock(other)

    assert before < str(uuid6()) < "2"
