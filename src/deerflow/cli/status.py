"""Says what a command is doing while it has nothing else to show; loads in no time itself."""

from typing import TextIO


class StatusLine:
    """One line at the bottom of a terminal; a log gets only the first text, as a line of its own."""

    def __init__(self, stream: TextIO, *, is_shown: bool = True) -> None:
        """Write to `stream`; to nobody where `is_shown` is False."""
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._is_shown = is_shown
        self._is_there = False

    def say(self, text: str) -> None:
        """Show `text` instead of what was shown before."""
        if not self._is_shown:
            return
        self._is_shown = self._is_there = self._is_terminal
        self._write(f"\r\x1b[K{text}…" if self._is_terminal else f"{text}…\n")

    def clear(self) -> None:
        """Leave the line to others."""
        if self._is_there:
            self._write("\r\x1b[K")
            self._is_there = False

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
