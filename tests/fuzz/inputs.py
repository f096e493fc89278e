"""Inputs that several targets share."""

import json
from collections.abc import Iterable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

ODD_TEXTS = (
    *("", " ", "\x00", "a\x00b", "..", "../../etc/passwd", "/", "//", "~", "-", "*", "%00", "%s{}", "null"),
    *("\ufeff", "\u202e", "\u2028", "💥", "é", "١٢", "9" * 400, "a" * 3000, "[" * 2000, "a.b", "1e999"),
    *("$HOME", "{{x}}", "<b>", "'; --", "\r\nX: y", "/mnt/user-data/workspace/x", "/mnt/user-data/../x"),
)
ODD_NUMBERS = (0, -1, 1, 2**31, 2**53 + 1, 2**63, 2**64, 10**30, -(10**30), 0.5, -0.0, 1e308)

texts = st.one_of(st.sampled_from(ODD_TEXTS), st.text(max_size=40))
scalars = st.one_of(
    st.none(), st.booleans(), st.sampled_from(ODD_NUMBERS), st.integers(), st.floats(allow_nan=False), texts
)
json_values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)
deep_values = st.builds(
    lambda depth, opening: nested(depth, opening),
    st.sampled_from((60, 99, 150, 240, 252, 300, 900)),
    st.booleans(),
)


def nested(depth: int, in_lists: bool) -> Any:
    """Return a value with so many levels."""
    value: Any = 1
    for _ in range(depth):
        value = [value] if in_lists else {"a": value}
    return value


def splits(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """Return `data` in pieces, cut at these places as far as they are in it."""
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


cuts = st.lists(st.integers(0, 5000), max_size=8)


def examples(share: float) -> Any:
    """Return settings for a target whose examples cost more, or less, than others."""
    return settings(max_examples=max(3, int(settings.default.max_examples * share)))  # type: ignore[union-attr]


def as_json(value: Any) -> bytes:
    """Return a value as a client sends it."""
    return json.dumps(value, ensure_ascii=True, default=str).encode()
