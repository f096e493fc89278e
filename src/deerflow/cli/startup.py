"""Ctrl-C and a status line while a command is still loading; imports only fast modules itself."""

import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TextIO


def end_on_interrupt() -> AbstractContextManager[None]:
    """Let Ctrl-C end the process without a traceback while there is nothing to stop or clean up."""
    return _exchanged(signal.default_int_handler, signal.SIG_DFL)


def raise_on_interrupt() -> AbstractContextManager[None]:
    """Raise `KeyboardInterrupt` on Ctrl-C in a command, even inside of `end_on_interrupt`."""
    return _exchanged(signal.SIG_DFL, signal.default_int_handler)


@contextmanager
def _exchanged(before: Any, then: Any) -> Iterator[None]:
    """Replace the SIGINT handler `before` by `then`; an ignored SIGINT (background job) stays ignored."""
    is_main = threading.current_thread() is threading.main_thread()  # only there can handlers be set
    if not is_main or signal.getsignal(signal.SIGINT) is not before:
        yield
        return
    signal.signal(signal.SIGINT, then)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


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
