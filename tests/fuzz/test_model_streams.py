"""Streams of model servers: read the same in any pieces, and refused in one way only."""

import json
import re
from typing import Any

from fuzz.inputs import cuts, json_values, nested, splits
from hypothesis import example, given
from hypothesis import strategies as st

from deerflow.models.wire import (
    ChunkDecoder,
    MalformedStreamError,
    error_in,
    has_choices,
    has_substance,
    joined,
    tidy_whole,
)

Json = dict[str, Any]
MADE_ID = re.compile(r"call_[0-9a-f]{32}")

WORDS = st.one_of(st.none(), st.sampled_from(("", "a", "b\n", "é", "{", '{"x": 1}', "}")), json_values)
CALLS = st.fixed_dictionaries(
    {},
    optional={
        "index": st.one_of(st.integers(0, 2), json_values),
        "id": st.one_of(st.sampled_from(("c1", "c2", "", None)), json_values),
        "function": st.one_of(
            st.fixed_dictionaries({}, optional={"name": WORDS, "arguments": WORDS}), json_values
        ),
    },
)
DELTAS = st.fixed_dictionaries(
    {},
    optional={
        "role": WORDS,
        "content": WORDS,
        "reasoning_content": WORDS,
        "tool_calls": st.one_of(st.lists(CALLS, max_size=3), json_values),
    },
)
CHOICES = st.fixed_dictionaries(
    {},
    optional={
        "index": WORDS,
        "delta": st.one_of(DELTAS, json_values),
        "message": st.one_of(DELTAS, json_values),
        "finish_reason": st.sampled_from((None, "stop", "tool_calls", "length", 7)),
        "usage": json_values,
        "logprobs": json_values,
    },
)
CHUNKS = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.one_of(st.lists(CHOICES, max_size=2), json_values),
        "usage": st.one_of(st.fixed_dictionaries({"total_tokens": st.integers(0, 9)}), json_values),
        "error": json_values,
        "code": json_values,
        "message": json_values,
        "base_resp": json_values,
    },
)
LINES = st.one_of(
    CHUNKS.map(lambda chunk: b"data: " + json.dumps(chunk).encode()),
    json_values.map(lambda value: b"data:" + json.dumps(value).encode()),
    st.sampled_from(
        (b"data: [DONE]", b": ping", b"event: x", b"", b"data:", b"data: {", b"data: \xff", b"\r")
    ),
    st.binary(max_size=30),
)
STREAMS = st.builds(
    lambda lines, end: end.join(lines) + end,
    st.lists(LINES, max_size=8),
    st.sampled_from((b"\n\n", b"\n", b"\r\n")),
)


def deep(key: str, depth: int) -> bytes:
    """Return a stream whose only call, or delta, has so many levels."""
    inner = json.dumps(nested(depth, in_lists=key == "delta"))
    delta = inner if key == "delta" else f'{{"tool_calls": [{{"function": {{"arguments": {inner}}}}}]}}'
    return f'data: {{"choices": [{{"delta": {delta}}}]}}\n\n'.encode()


@example(deep("delta", 900), [])
@example(deep("arguments", 300), [])
@given(STREAMS, cuts)
def test_a_stream_is_read_the_same_in_any_pieces(stream: bytes, at: list[int]) -> None:
    assert read(splits(stream, at)) == read([stream])


@given(CHUNKS)
def test_a_whole_answer_is_read_or_refused(body: Json) -> None:
    error_in(body)
    if not has_choices(body):
        return

    for reads in (lambda: ChunkDecoder().whole(json.loads(json.dumps(body))), lambda: tidy_whole(body)):
        try:
            reads()
        except MalformedStreamError:
            continue


def read(pieces: list[bytes]) -> object:
    """Return what there is in a stream, however its text is divided into chunks; or that it is none."""
    decoder, chunks = ChunkDecoder(), []
    try:
        for piece in pieces:
            chunks += joined(decoder.feed(piece))
        chunks += joined(decoder.finish())
    except MalformedStreamError as error:
        return str(error)
    found: dict[str, list[Any]] = {}
    for chunk in chunks:
        has_substance(chunk)
        error_in(chunk)
        for choice in chunk.get("choices") or ():
            for key, value in choice["delta"].items():
                _add(found, key, value)
            _add(found, "finish", choice.get("finish_reason"))
        _add(found, "usage", chunk.get("usage"))
    whole = {
        key: "".join(values) if all(isinstance(v, str) for v in values) else values
        for key, values in found.items()
    }
    return MADE_ID.sub("made", json.dumps([whole, decoder.is_done, decoder.is_finished], sort_keys=True))


def _add(found: dict[str, list[Any]], key: str, value: Any) -> None:
    if key != "tool_calls":
        if value:
            found.setdefault(key, []).append(value)
        return
    for call in value or ():
        function = call["function"]
        for name, part in (("id", call.get("id")), *function.items()):
            _add(found, f"{call['index']} {name}", part)
