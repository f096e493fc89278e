"""From bytes to chunks: joining, tidying and refusing."""

import json
from typing import Any

import pytest

from deerflow.models.wire import ChunkDecoder, MalformedStreamError, error_in, has_substance, joined


def line(delta: dict[str, Any] | None, *, finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "x", "choices": [choice], **more}).encode() + b"\n\n"


def deltas(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]


def arguments(text: str, *, index: int | None = 0, **more: Any) -> dict[str, Any]:
    call: dict[str, Any] = {"function": {"arguments": text}, **more}
    if index is not None:
        call["index"] = index
    return {"tool_calls": [call]}


def test_text_of_one_read_is_joined_and_that_of_two_reads_is_not() -> None:
    decoder = ChunkDecoder()

    first = decoder.feed(line({"content": "a"}) + line({"content": "b"}))
    second = decoder.feed(line({"content": "c"}))

    assert deltas(first) == [{"content": "ab"}]
    assert deltas(second) == [{"content": "c"}]


def test_text_and_reasoning_stay_apart() -> None:
    chunks = ChunkDecoder().feed(
        line({"role": "assistant", "content": None, "reasoning_content": "h"})
        + line({"content": "", "reasoning_content": "m"})
        + line({"content": "y", "reasoning_content": None})
        + line({"content": "es"})
    )

    assert [d.get("reasoning_content") or d.get("content") for d in deltas(chunks)] == ["hm", "yes"]


def test_pieces_of_one_tool_call_are_joined_into_it() -> None:
    start = arguments("", id="c1")
    start["tool_calls"][0]["function"]["name"] = "bash"
    other = arguments("{", index=1, id="c2")

    chunks = ChunkDecoder().feed(
        line(start)
        + line(arguments('{"a"'))
        + line(arguments(": 1}"))
        + line(other)
        + line(arguments("}", index=1))
    )

    calls = [d["tool_calls"][0] for d in deltas(chunks)]
    assert [(c["id"], c["function"]["arguments"]) for c in calls] == [("c1", '{"a": 1}'), ("c2", "{}")]


def test_what_carries_more_than_text_is_left_alone() -> None:
    logprobs = json.dumps(
        {"choices": [{"index": 0, "delta": {"content": "b"}, "logprobs": {"content": []}}]}
    ).encode()

    chunks = ChunkDecoder().feed(
        line({"content": "a"}) + b"data: " + logprobs + b"\n\n" + line({"content": "c"}, finish="stop")
    )

    assert [d.get("content") for d in deltas(chunks)] == ["a", "b", "c", None]


@pytest.mark.parametrize("size", [1, 7, 64])
def test_chunks_may_be_torn_anywhere(size: int) -> None:
    raw = line({"content": "你好"}) + b": keep-alive\r\n\r\n" + line({"content": "!"}) + b"data: [DONE]\n\n"
    decoder = ChunkDecoder()

    chunks = [c for start in range(0, len(raw), size) for c in decoder.feed(raw[start : start + size])]

    assert "".join(d["content"] for d in deltas(chunks)) == "你好!"
    assert decoder.is_done


def test_windows_line_ends_and_missing_blanks_are_read() -> None:
    raw = line({"content": "a"}).replace(b"\n", b"\r\n").replace(b"data: ", b"data:")

    assert deltas(ChunkDecoder().feed(raw)) == [{"content": "a"}]


def test_a_last_line_without_an_end_still_counts() -> None:
    decoder = ChunkDecoder()
    assert decoder.feed(line({"content": "a"}, finish="stop").rstrip()) == []

    assert deltas(decoder.finish()) == [{"content": "a"}, {}]
    assert decoder.is_finished


def test_only_the_last_of_growing_token_counts_is_reported() -> None:
    decoder = ChunkDecoder()

    chunks = decoder.feed(
        line({"content": "a"}, usage={"total_tokens": 1}) + line({"content": "b"}, usage={"total_tokens": 2})
    )
    last = decoder.finish()

    assert deltas(chunks) == [{"content": "ab"}]
    assert [c["usage"] for c in last] == [{"total_tokens": 2}]
    assert all("usage" not in c for c in chunks)


def test_token_counts_inside_a_choice_are_found() -> None:
    raw = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": {"total_tokens": 5}}]}
    decoder = ChunkDecoder()

    decoder.feed(b"data: " + json.dumps(raw).encode() + b"\n")

    assert decoder.finish()[0]["usage"] == {"total_tokens": 5}


def test_tool_calls_without_an_index_get_one() -> None:
    decoder = ChunkDecoder()

    chunks = decoder.feed(line(arguments("{}", index=None, id="a"))) + decoder.feed(
        line(arguments("{", index=None, id="b")) + line(arguments("}", index=None))
    )

    calls = [d["tool_calls"][0] for d in deltas(chunks)]
    assert [(c["index"], c["function"]["arguments"]) for c in calls] == [(0, "{}"), (1, "{}")]


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b'"text"', b"null", b'{"choices": 3}', b'{"choices": ["a"]}', b"\xff\xfe"]
)
def test_what_is_no_chunk_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedStreamError):
        ChunkDecoder().feed(b"data: " + data + b"\n")


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deerflow.models.wire.LONGEST_LINE_BYTES", 100)

    with pytest.raises(MalformedStreamError, match="longer than 100 bytes"):
        ChunkDecoder().feed(b"data: " + b"x" * 200)


def test_a_missing_delta_does_not_hide_the_end() -> None:
    decoder = ChunkDecoder()

    chunks = decoder.feed(line(None, finish="length"))

    assert decoder.is_finished
    assert chunks[0]["choices"][0]["delta"] == {}


@pytest.mark.parametrize(
    ("delta", "finish", "expected"),
    [
        ({"role": "assistant", "content": ""}, None, False),
        ({"content": "a"}, None, True),
        ({"reasoning_content": "a"}, None, True),
        (arguments("{"), None, True),
        ({}, "stop", True),
    ],
)
def test_substance_is_what_a_reader_would_notice(
    delta: dict[str, Any], finish: str | None, expected: bool
) -> None:
    (chunk,) = ChunkDecoder().feed(line(delta, finish=finish))

    assert has_substance(chunk) is expected


def decoded(*lines: bytes) -> list[dict[str, Any]]:
    decoder = ChunkDecoder()
    return joined([*decoder.feed(b"".join(lines)), *decoder.finish()])


def test_a_short_answer_that_came_at_once_is_its_words_and_its_end() -> None:
    chunks = decoded(
        line({"role": "assistant", "content": ""}),
        line({"content": "a"}),
        line({"content": "b"}),
        line({}, finish="stop", system_fingerprint="f"),
        b'data: {"id": "x", "choices": [], "usage": {"total_tokens": 3}}\n\n',
    )

    words, end = chunks
    assert words["choices"][0]["delta"] == {"role": "assistant", "content": "ab"}
    assert words["choices"][0]["finish_reason"] is None
    assert end["choices"][0]["delta"] == {}
    assert (end["choices"][0]["finish_reason"], end["system_fingerprint"]) == ("stop", "f")
    assert end["usage"] == {"total_tokens": 3}


def test_words_that_come_with_the_end_are_joined_to_the_words_before_it() -> None:
    chunks = decoded(line({"content": "a"}), line({"content": "b"}, finish="length"), line({"content": "c"}))

    assert [each["choices"][0]["finish_reason"] for each in chunks] == [None, "length", None]
    assert deltas(chunks) == [{"content": "ab"}, {}, {"content": "c"}]


@pytest.mark.parametrize(
    "delta",
    [
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "reasoning_content": "a"},
        arguments('{"a": 1}', id="c1", type="function"),
    ],
)
def test_content_that_comes_with_the_end_is_a_chunk_before_it(delta: dict[str, Any]) -> None:
    said = json.loads(json.dumps(delta))
    words, end = decoded(line(delta, finish="stop", usage={"total_tokens": 3}))

    assert words["choices"] == [{"index": 0, "delta": said, "finish_reason": None}]
    assert end["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    assert (words["id"], end["id"], end["usage"]) == ("x", "x", {"total_tokens": 3})


def test_a_choice_that_ends_with_words_leaves_the_other_choices_alone() -> None:
    both = [
        {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop", "logprobs": {"content": []}},
        {"index": 1, "delta": {"content": "b"}, "finish_reason": None},
    ]

    words, end = decoded(b"data: " + json.dumps({"choices": both}).encode() + b"\n\n")

    assert [(one["index"], one["delta"], one["finish_reason"]) for one in words["choices"]] == [
        (0, {"content": "a"}, None),
        (1, {"content": "b"}, None),
    ]
    assert end["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]


def test_answers_with_several_choices_or_probabilities_are_not_joined() -> None:
    both = b'data: {"choices": [{"index": 0, "delta": {}}, {"index": 1, "delta": {}}]}\n\n'
    sure = json.dumps({"choices": [{"index": 0, "delta": {}, "logprobs": {"content": []}}]}).encode()

    chunks = decoded(both, line({"content": "a"}), b"data: " + sure + b"\n\n")

    assert len(chunks) == 3


@pytest.mark.parametrize("delta", ["hi", 3, ["hi"], {"tool_calls": [None]}, {"tool_calls": "ls"}])
def test_a_delta_of_another_form_is_refused(delta: Any) -> None:
    with pytest.raises(MalformedStreamError, match="no chunk"):
        ChunkDecoder().feed(line(delta))


def test_an_empty_list_is_taken_for_an_empty_delta_and_words_are_no_token_counts() -> None:
    decoder = ChunkDecoder()

    chunks = decoder.feed(line([], finish="stop", usage="unknown"))  # type: ignore[arg-type]

    assert (deltas(chunks), decoder.is_finished, decoder.finish()) == ([{}], True, [])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": {"message": "no"}}, {"message": "no"}),
        ({"error": "no"}, "no"),
        ({"base_resp": {"status_code": 1004, "status_msg": "no"}}, {"message": "no", "code": 1004}),
        ({"object": "error", "message": "no"}, {"object": "error", "message": "no"}),
        ({"code": "Throttling", "message": "no"}, {"code": "Throttling", "message": "no"}),
        ({"choices": [], "base_resp": {"status_code": 0, "status_msg": ""}}, None),
        ({"choices": [{}], "code": 200, "message": "ok"}, None),
        ({"choices": [], "code": 200, "message": "ok", "usage": {"total_tokens": 3}}, None),
        ({"choices": []}, None),
    ],
)
def test_an_error_is_found_in_every_form_that_servers_give_it(body: dict[str, Any], expected: object) -> None:
    assert error_in(body) == expected
