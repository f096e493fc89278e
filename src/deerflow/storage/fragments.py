"""Write, find and replace references to fragments inside event bodies.

A reference is the byte 0x01, a number or a range `a-b`, and 0x01 again. JSON cannot hold a raw
control character, so a reference is never mistaken for text.
"""

import re
from collections.abc import Iterable, Mapping

_REFERENCE = re.compile(rb"\x01(\d+)(?:-(\d+))?\x01")


def references_to(numbers: Iterable[int]) -> bytes:
    """Return references to these fragments in this order, consecutive ones as a range, joined by commas."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return b",".join(
        b"\x01%d\x01" % first if first == last else b"\x01%d-%d\x01" % (first, last) for first, last in ranges
    )


def references(body: bytes) -> list[int]:
    """Return the numbers of the fragments that a body refers to, each once, in order of appearance."""
    if b"\x01" not in body:
        return []
    found: dict[int, None] = {}
    for first, last in _REFERENCE.findall(body):
        found.update(dict.fromkeys(range(int(first), int(last or first) + 1)))
    return list(found)


def render(body: bytes, lookup: Mapping[int, bytes]) -> bytes:
    """Return the body with every reference replaced; raise `KeyError` for a fragment that `lookup` lacks."""
    if b"\x01" not in body:
        return body

    # `split` yields text, then (first, last, text) repeatedly; a long conversation has one reference per
    # message.
    text, *parts = _REFERENCE.split(body)
    pieces = [text]
    for first, last, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        if last is None:
            pieces.append(lookup[int(first)])
        else:
            pieces.append(b",".join([lookup[number] for number in range(int(first), int(last) + 1)]))
        pieces.append(text)
    return b"".join(pieces)
