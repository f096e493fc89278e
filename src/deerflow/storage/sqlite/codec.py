"""How bodies and times are laid down in columns."""

import zlib
from datetime import UTC, datetime

SMALL = 400
"""Bodies up to this many bytes are stored as they are."""
_ZLIB = 0x78


def pack(body: bytes) -> bytes:
    """Return the body as stored: compressed where that is smaller.

    A stored body that starts with zlib's first byte is compressed; that byte needs no flag beside it.
    """
    if len(body) > SMALL or body[:1] == b"\x78":
        packed = zlib.compress(body, 1)
        if len(packed) < len(body) or body[0] == _ZLIB:
            return packed
    return body


def unpack(stored: bytes) -> bytes:
    """Return the body behind `pack`."""
    return zlib.decompress(stored) if stored[:1] == b"\x78" else stored


def now_us() -> int:
    """Return the time in microseconds, as columns keep it."""
    return int(datetime.now(UTC).timestamp() * 1_000_000)


def time_of(us: int) -> datetime:
    """Return the time behind a column."""
    return datetime.fromtimestamp(us / 1_000_000, UTC)
