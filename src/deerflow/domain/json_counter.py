"""Count the values of JSON before it is parsed: each costs parsing time on the event loop."""

import re

_TEXT_END = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_WHOLE_TEXT = re.compile(b'"' + _TEXT_END.pattern, re.DOTALL)
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class JsonCounter:
    """Counts values and nesting levels of JSON that arrives in chunks, without parsing it."""

    def __init__(self) -> None:
        self.count = 0
        self.depth = 0
        """The deepest level so far."""
        self._level = 0
        self._is_in_text = False
        self._rest = b""
        """A backslash whose next byte is in the next chunk."""

    def feed(self, piece: bytes) -> None:
        """Process the next chunk; invalid JSON gets an arbitrary count and is refused by the parser."""
        structure = _WHOLE_TEXT.sub(b"", self._without_open_text(piece))
        outside, quote, text = structure.partition(b'"')
        if quote:
            self._is_in_text = True
            self._rest = _trailing_escape(text)
        self.count += sum(map(outside.count, (b",", b"{", b"[")))
        for bracket in outside.translate(None, _ALL_BUT_BRACKETS):
            self._level += 1 if bracket in b"{[" else -1
            self.depth = max(self.depth, self._level)

    def _without_open_text(self, piece: bytes) -> bytes:
        """Return a chunk from the end of the string that began in an earlier one."""
        piece, self._rest = self._rest + piece, b""
        if not self._is_in_text:
            return piece
        found = _TEXT_END.match(piece)
        self._is_in_text = found is None
        if found is None:
            self._rest = _trailing_escape(piece)
            return b""
        return piece[found.end() :]


def _trailing_escape(text: bytes) -> bytes:
    """Return the backslash at the end of an unterminated string, unless it is itself escaped."""
    return b"\\" if (len(text) - len(text.rstrip(b"\\"))) % 2 else b""
