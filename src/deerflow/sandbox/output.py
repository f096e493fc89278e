"""Collects a command's output: bounded, stripped of control sequences, and streamed while it arrives."""

import codecs
import re
from collections.abc import Callable

from deerflow.sandbox.base import OutputListener

STREAM_MAX_BYTES = 1_048_576
"""Maximum output of one command that is streamed while it runs; the result has the rest."""
STOP_BYTES = 64 * 1024 * 1024
"""A command that prints more than this is stopped."""
UNCUT_BYTES = 8 * 1024 * 1024
"""Maximum output that is kept when the settings disable truncation."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links, device strings
    r"|\x1b[@-Z\\-_]?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f]"
)

Mask = Callable[[str], str]
"""Replaces host paths by virtual paths."""


def clean(text: str) -> str:
    """Return `text` without terminal sequences and control characters, with `\\n` line endings."""
    return _ESCAPES.sub("", text.replace("\r\n", "\n"))


def clip(text: str, limit: int, *, gone: int = 0, unit: str = "characters") -> str:
    """Truncate `text` in the middle to `limit` characters, with a note of how much was removed.

    Args:
        text: The text to truncate.
        limit: Number of characters to keep; 0 keeps all.
        gone: Amount already removed from the middle of `text`, in `unit`.
        unit: Unit of `gone`.
    """
    if not gone and (not limit or len(text) <= limit):
        return text
    half = limit // 2 if limit else len(text) // 2
    if not gone:
        gone = len(text) - 2 * half
    return f"{text[:half]}\n[{gone} {unit} left out]\n{text[len(text) - half :]}"


class OutputBuffer:
    """Keeps the start and the end of an output and passes it to a listener as it arrives."""

    def __init__(
        self, *, max_chars: int, listener: OutputListener | None = None, mask: Mask | None = None
    ) -> None:
        self._max_chars = max_chars
        self._room = 2 * max_chars if max_chars else UNCUT_BYTES // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._mask = mask
        self._live = _LiveOutput(listener, mask) if listener else None
        self.total_bytes = 0

    @property
    def is_too_much(self) -> bool:
        return self.total_bytes > STOP_BYTES

    def feed(self, data: bytes) -> None:
        """Append the next chunk."""
        if self._live and self.total_bytes < STREAM_MAX_BYTES:
            self._live.feed(data)
        self.total_bytes += len(data)
        fits = self._room - len(self._head)
        if fits > 0:
            self._head += data[:fits]
            data = data[fits:]
        if data:
            self._tail += data
            if len(self._tail) > 2 * self._room:
                del self._tail[: -self._room]

    def text(self) -> str:
        """Return the kept output, truncated in the middle."""
        if self._live:
            self._live.finish()
        tail = self._tail[-self._room :] if len(self._tail) > self._room else self._tail
        gone = self.total_bytes - len(self._head) - len(tail)
        if gone <= 0:
            return clip(self._readable(bytes(self._head + tail)), self._max_chars)
        half = self._max_chars // 2 or self._room
        start = self._readable(bytes(self._head))[:half]
        end = self._readable(bytes(tail))[-half:]
        gone = self.total_bytes - len(start.encode()) - len(end.encode())
        return f"{start}\n[{gone} bytes left out]\n{end}"

    def _readable(self, data: bytes) -> str:
        text = clean(data.decode("utf-8", "replace"))
        return self._mask(text) if self._mask else text


class _LiveOutput:
    """Decodes a stream incrementally; with a mask it buffers to whole lines, so that no path is split."""

    def __init__(self, listener: OutputListener, mask: Mask | None) -> None:
        self._listener = listener
        self._mask = mask
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._pending = ""

    def feed(self, data: bytes) -> None:
        text = self._pending + self._decode(data)
        self._pending = ""
        if self._mask and len(text) < 4096:
            text, newline, self._pending = text.rpartition("\n")
            text += newline
        self._tell(text)

    def finish(self) -> None:
        text, self._pending = self._pending + self._decode(b"", True), ""
        self._tell(text)

    def _tell(self, text: str) -> None:
        text = clean(text)
        if self._mask:
            text = self._mask(text)
        if text:
            self._listener(text)
