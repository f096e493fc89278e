"""Texts that are looked through before people or parsers see them: counted, made visible, redacted."""

import json
import unicodedata
from typing import Any

from fuzz.inputs import cuts, json_values, splits
from hypothesis import given
from hypothesis import strategies as st

from deerflow.config.secrets import HIDDEN
from deerflow.domain.json_counter import JsonCounter
from deerflow.domain.visible_text import printable, visible
from deerflow.observability.logs import Redactor, StreamRedactor

UNSEEN = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp", "Zs"})
"""Categories of characters that show nothing."""
SECRETS = st.lists(
    st.builds(str.__add__, st.sampled_from(("abcdef", "abcabc")), st.text("abcdef+/ %", max_size=6)),
    min_size=1,
    max_size=4,
)
"""Some are the beginning of others, and some overlap."""


def counted(pieces: list[bytes]) -> tuple[int, int]:
    counter = JsonCounter()
    for piece in pieces:
        counter.feed(piece)
    return counter.count, counter.depth


def members(value: Any) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return len(inner) + sum(map(members, inner))


def levels(value: Any) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(levels, inner), default=0)


@given(json_values, st.booleans(), cuts)
def test_json_is_counted_whole_or_in_pieces(value: Any, ascii_only: bool, at: list[int]) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode(errors="surrogatepass")

    count, depth = counted(splits(data, at))

    assert count >= members(value)
    assert depth == levels(value)


@given(
    st.lists(st.sampled_from(list(b'"\\[]{},:a\n')), max_size=40).map(bytes) | st.binary(max_size=60), cuts
)
def test_what_is_no_json_is_counted_the_same_in_any_pieces(data: bytes, at: list[int]) -> None:
    assert counted(splits(data, at)) == counted([data])


@given(st.text(st.characters(), max_size=60))
def test_nothing_in_a_shown_text_is_unseen(text: str) -> None:
    shown = visible(text)

    assert [
        letter for letter in shown if unicodedata.category(letter) in UNSEEN and letter not in " \n\t"
    ] == []
    assert visible(shown) == shown
    assert not any(
        unicodedata.category(letter) in ("Cc", "Cf") for letter in printable(text) if letter not in "\n\t"
    )


@given(SECRETS, st.lists(st.text("abcdef+/ %\n", max_size=8), max_size=4), st.data())
def test_a_known_secret_never_survives(secrets: list[str], words: list[str], data: st.DataObject) -> None:
    parts = data.draw(st.lists(st.sampled_from([*secrets, *words]), max_size=8))
    text = "".join(parts)
    redact = Redactor(secrets)
    stream = StreamRedactor(redact)
    places = sorted({cut % (len(text) + 1) for cut in data.draw(cuts)})
    pieces = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]

    streamed = "".join(map(stream, pieces)) + stream.rest()

    for shown in (redact(text), redact.known(text), redact.known("x" * 3000 + text), streamed):
        assert not any(secret in shown for secret in secrets)
    assert streamed == redact.known(text)


def test_a_secret_that_begins_with_another_is_hidden_whole_in_pieces() -> None:
    stream = StreamRedactor(Redactor(["abcdef", "abcdefa"]))

    assert "".join(map(stream, ["abcdef", "a"])) + stream.rest() == HIDDEN


@given(st.text(max_size=200))
def test_a_text_without_secrets_keeps_its_words(text: str) -> None:
    assert Redactor(["nowhere-in-it-4711"]).known(text) == text
