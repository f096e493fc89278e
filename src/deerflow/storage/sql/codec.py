"""Encode bodies and times for database columns."""

import time
import zlib
from datetime import UTC, datetime

from deerflow.storage.sql.compression_dictionary import DICTIONARIES, NEWEST

TINY = 64
"""Bodies up to this many bytes are stored uncompressed."""
_SHORT = 8192
# First byte of a zlib stream with an 8 KB or 32 KB window; no uncompressed body starts with it.
_MARKS = (0x58, 0x78)


def pack(body: bytes) -> bytes:
    """Return the body as stored: compressed where that is smaller."""
    must = body[:1] in (b"\x58", b"\x78")
    if len(body) <= TINY and not must:
        return body
    # A small window costs 10 µs, the default one 70 µs: zlib clears it for every body.
    bits, memory, level = (13, 5, 6) if len(body) <= _SHORT else (15, 8, 3)
    squeezer = zlib.compressobj(level, zlib.DEFLATED, bits, memory, zdict=NEWEST)
    packed = squeezer.compress(body) + squeezer.flush()
    return packed if must or len(packed) < len(body) else body


def unpack(stored: bytes) -> bytes:
    """Return the body that `pack` encoded."""
    if not stored or stored[0] not in _MARKS:
        return stored
    # The dictionary's checksum follows zlib's two-byte header.
    words = DICTIONARIES[int.from_bytes(stored[2:6], "big")]
    return zlib.decompressobj(zdict=words).decompress(stored)


def printable(text: str) -> str:
    """Return free text without NUL, which databases cannot store in text columns."""
    return text.replace("\x00", "\ufffd")


def now_us() -> int:
    """Return the current time in microseconds, as stored in columns."""
    return time.time_ns() // 1000


LATER = "CASE WHEN ? > updated_at THEN ? ELSE updated_at + 1 END"
"""SQL for the new `updated_at` of a row: now, and always later than before. Takes the values of `later`."""


def later() -> tuple[int, int]:
    """Return the parameters for `LATER`."""
    now = now_us()
    return now, now


def time_of(us: int) -> datetime:
    """Return the time stored in a column."""
    return datetime.fromtimestamp(us / 1_000_000, UTC)
