"""The messages of a thread are encoded once, whoever meets them again, and are shown as they are."""

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, HumanMessage, ToolMessage

from deerflow.runtime.encoder import MAX_RENDERED_BYTES, Encoder, Known
from deerflow.runtime.serialization import to_json
from deerflow.storage.fragments import references, render

METADATA = {"langgraph_node": "model", "langgraph_step": 1}


def plain(value: Any) -> Any:
    return json.loads(to_json(value))


def shown(encoder: Encoder, body: bytes) -> Any:
    """Return an event as a reader sees it, who gets the same whether it comes from here or from the log."""
    data = encoder.render(body)
    assert data == render(body, encoder.fragments)
    return json.loads(data)


def conversation(turns: int, words: str = "word") -> list[AnyMessage]:
    return [
        kind(f"{words} {number}", id=f"{kind.__name__}{number}")
        for number in range(turns)
        for kind in (HumanMessage, AIMessage)
    ]


def test_a_message_is_kept_once_however_often_it_comes_by() -> None:
    encoder = Encoder(Known({}))
    messages = [HumanMessage("one", id="1"), AIMessage("two", id="2")]

    bodies = [encoder.encode({"messages": messages[:count], "title": "t"}) for count in (1, 2, 2, 2)]

    assert len(encoder.fresh) == 2
    assert len(bodies[-1]) < 50
    assert shown(encoder, bodies[-1]) == {"messages": [m.model_dump() for m in messages], "title": "t"}


def test_equal_messages_of_a_later_run_are_not_stored_again() -> None:
    first = Encoder(Known({}))
    first.encode([HumanMessage("one", id="1")])
    second = Encoder(Known(first.known.digests))

    body = second.encode([HumanMessage("one", id="1"), AIMessage("two", id="2")])

    assert [number for number, _ in second.fresh] == [2]
    assert references(body) == [1, 2]


def test_tokens_cost_little_and_render_to_the_json_of_the_plain_dump() -> None:
    encoder = Encoder(Known({}))
    chunks = [AIMessageChunk(word, id="a", response_metadata={"model": "m"}) for word in ("it", " is", " 42")]

    bodies = [encoder.encode_chunk(chunk, METADATA) for chunk in chunks]

    assert [render(body, encoder.fragments) for body in bodies] == [
        to_json([chunk.model_dump(), METADATA]) for chunk in chunks
    ]
    assert len(encoder.fresh) == 1
    assert max(map(len, bodies)) < 30


@pytest.mark.parametrize(
    "chunk",
    [
        AIMessageChunk([{"type": "text", "text": "hi", "index": 0}], id="a"),
        AIMessageChunk("", id="a", tool_call_chunks=[{"name": "x", "args": "", "id": "i", "index": 0}]),
        AIMessageChunk("", id="a", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
        AIMessageChunk("", id="a", additional_kwargs={"reasoning_content": "hm"}),
        AIMessageChunk("x", id="a", chunk_position="last"),
        AIMessageChunk("x", id="a", name="other"),
        AIMessageChunk("broken \ud800", id="a"),
        AIMessageChunk('quotes " and \x01 marks \\', id="a"),
        ToolMessage("result", tool_call_id="c", id="t"),
    ],
)
def test_every_kind_of_piece_renders_to_its_plain_dump_after_a_plain_token(chunk: Any) -> None:
    encoder = Encoder(Known({}))
    encoder.encode_chunk(AIMessageChunk("first", id="a"), METADATA)

    body = encoder.encode_chunk(chunk, METADATA)

    assert json.loads(render(body, encoder.fragments)) == json.loads(to_json([chunk.model_dump(), METADATA]))


def test_text_that_looks_like_a_reference_stays_text() -> None:
    encoder = Encoder(Known({}))
    encoder.encode([HumanMessage("one", id="1")])

    body = encoder.encode({"text": "\x011\x01", "messages": [HumanMessage("\x011-2\x01", id="2")]})

    assert shown(encoder, body)["text"] == "\x011\x01"
    assert shown(encoder, body)["messages"][0]["content"] == "\x011-2\x01"


def test_an_event_that_cannot_be_shortened_is_written_whole() -> None:
    encoder = Encoder(Known({}))

    body = encoder.encode({"n": 2**80, "messages": [HumanMessage("one", id="1")]})

    assert references(body) == []
    assert shown(encoder, body)["messages"][0]["content"] == "one"


def test_a_state_that_goes_on_differently_is_shown_as_it_is() -> None:
    encoder = Encoder(Known({}))
    messages: list[AnyMessage] = [HumanMessage("one", id="1"), AIMessage("two", id="2")]
    states = [list(messages), [*messages, HumanMessage("three", id="3")], [messages[0]], messages[::-1]]

    bodies = [encoder.encode({"messages": state}) for state in states]
    messages.append(AIMessage("late", id="4"))  # whoever owns the list goes on with it
    states.append(messages)
    bodies.append(encoder.encode({"messages": messages}))

    assert [shown(encoder, body) for body in bodies] == [plain({"messages": state}) for state in states]


def test_a_later_run_knows_the_messages_of_the_last_state_by_what_they_say() -> None:
    first = Encoder(Known({}))
    first.encode({"messages": conversation(20)})
    second = Encoder(first.known)

    body = second.encode({"messages": [*conversation(20), HumanMessage("new", id="n")]})

    assert [number for number, _ in second.fresh] == [41]
    assert shown(second, body) == plain({"messages": [*conversation(20), HumanMessage("new", id="n")]})


def test_a_message_that_was_changed_between_two_runs_is_shown_as_it_is_now() -> None:
    before = conversation(3)
    first = Encoder(Known({}))
    first.encode({"messages": before})
    after: list[AnyMessage] = [*before[:2], HumanMessage("corrected", id=before[2].id), *before[3:]]
    after[1] = AIMessage(before[1].content, id=before[1].id, additional_kwargs={"n": True})
    second = Encoder(first.known)

    assert shown(second, second.encode({"messages": after})) == plain({"messages": after})


def test_what_the_last_run_told_is_known_by_the_same_objects_until_the_run_may_change_them() -> None:
    messages = conversation(3)
    first = Encoder(Known({}))
    first.encode({"messages": messages})
    second = Encoder(first.known)

    rendered = shown(second, second.encode({"messages": messages}))
    messages[1].additional_kwargs["n"] = True
    changed = shown(second, second.encode({"messages": messages[:2]}))

    assert rendered == plain({"messages": conversation(3)})
    assert changed == plain({"messages": messages[:2]})


@pytest.mark.parametrize("words", ["word", "x" * (MAX_RENDERED_BYTES // 8)])
def test_every_state_is_shown_whole_also_after_later_ones(words: str) -> None:
    encoder = Encoder(Known({}))
    messages = conversation(10, words)
    states = [messages[:count] for count in (0, 1, 1, 2, 9, 20, 3)]

    bodies = [encoder.encode({"messages": state, "title": "t"}) for state in states]

    assert [shown(encoder, body)["messages"] for body in bodies] == [plain(state) for state in states]


def test_a_state_and_the_messages_around_it_are_told_apart() -> None:
    encoder = Encoder(Known({}))
    messages = conversation(6)
    encoder.encode({"messages": messages})

    body = encoder.encode({"model": {"messages": [messages[0], messages[1]], "last": messages[-1]}})

    assert shown(encoder, body) == plain(
        {"model": {"messages": [messages[0], messages[1]], "last": messages[-1]}}
    )
    assert references(body) == [1, 2, 12]
