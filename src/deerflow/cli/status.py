"""Status line for commands that have no other output yet; fast to import."""

from typing import TextIO


class StatusLine:
    """A replaceable line in a terminal; other streams get only the first text, as a separate line."""

    def __init__(self, stream: TextIO, *, is_shown: bool = True) -> None:
        """Write to `stream`, unless `is_shown` is False."""
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._is_shown = is_shown
        self._is_there = False

    def say(self, text: str) -> None:
        """Replace the line by `text`."""
        if not self._is_shown:
            return
        self._is_shown = self._is_there = self._is_terminal
        self._write(f"\r\x1b[K{text}…" if self._is_terminal else f"{text}…\n")

    def clear(self) -> None:
        """Remove the line, so that other output can follow."""
        if self._is_there:
            self._write("\r\x1b[K")
            self._is_there = False

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
