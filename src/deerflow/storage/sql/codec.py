"""How bodies and times are laid down in columns."""

import time
import zlib
from datetime import UTC, datetime

from deerflow.storage.sql.compression_dictionary import DICTIONARIES, NEWEST

TINY = 64
"""Bodies up to this many bytes are stored as they are."""
_SHORT = 8192
# zlib's first byte for a window of 8 KB and of 32 KB; nothing that we store starts with them otherwise.
_MARKS = (0x58, 0x78)


def pack(body: bytes) -> bytes:
    """Return the body as stored: compressed where that is smaller."""
    must = body[:1] in (b"\x58", b"\x78")
    if len(body) <= TINY and not must:
        return body
    # A small window costs 10 µs where the usual one costs 70: it is cleared for every body.
    bits, memory, level = (13, 5, 6) if len(body) <= _SHORT else (15, 8, 3)
    squeezer = zlib.compressobj(level, zlib.DEFLATED, bits, memory, zdict=NEWEST)
    packed = squeezer.compress(body) + squeezer.flush()
    return packed if must or len(packed) < len(body) else body


def unpack(stored: bytes) -> bytes:
    """Return the body behind `pack`."""
    if not stored or stored[0] not in _MARKS:
        return stored
    # The checksum of the dictionary follows the two bytes of zlib's head.
    words = DICTIONARIES[int.from_bytes(stored[2:6], "big")]
    return zlib.decompressobj(zdict=words).decompress(stored)


def printable(text: str) -> str:
    """Return free text without the one character that databases cannot keep in a text."""
    return text.replace("\x00", "\ufffd")


def now_us() -> int:
    """Return the time in microseconds, as columns keep it."""
    return time.time_ns() // 1000


LATER = "CASE WHEN ? > updated_at THEN ? ELSE updated_at + 1 END"
"""The new `updated_at` of a row: now, and in any case later than before. Takes the values of `later`."""


def later() -> tuple[int, int]:
    """Return the values for `LATER`."""
    now = now_us()
    return now, now


def time_of(us: int) -> datetime:
    """Return the time behind a column."""
    return datetime.fromtimestamp(us / 1_000_000, UTC)
