"""The serializer reads what LangGraph's own reads, and refuses what it should."""

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
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Command, Interrupt, Overwrite, Send
from pydantic import BaseModel

from deerflow.domain import RunOptions
from deerflow.storage.sql.serializer import StrictSerializer

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
        _DeltaSnapshot(MESSAGES),
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


def test_a_message_that_was_read_behaves_like_one_that_was_made() -> None:
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


def test_types_that_nobody_allowed_come_back_as_plain_data() -> None:
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
