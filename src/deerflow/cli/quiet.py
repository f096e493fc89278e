"""Ctrl-C before a command is at work; nothing here takes time to load itself."""

import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any


def quiet_end() -> AbstractContextManager[None]:
    """Let Ctrl-C end the process without a traceback while there is nothing to stop or to tidy up."""
    return _exchanged(signal.default_int_handler, signal.SIG_DFL)


def heard() -> AbstractContextManager[None]:
    """Let a command hear of Ctrl-C, inside of `quiet_end` too."""
    return _exchanged(signal.SIG_DFL, signal.default_int_handler)


@contextmanager
def _exchanged(before: Any, then: Any) -> Iterator[None]:
    """Handle Ctrl-C by `then` where it was handled by `before`; in the background it stays ignored."""
    is_main = threading.current_thread() is threading.main_thread()  # signals are the main thread's
    if not is_main or signal.getsignal(signal.SIGINT) is not before:
        yield
        return
    signal.signal(signal.SIGINT, then)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
