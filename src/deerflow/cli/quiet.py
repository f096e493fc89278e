"""Ctrl-C while a command is loaded; nothing here takes time to load itself."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_end() -> Iterator[None]:
    """Let Ctrl-C end the process without a traceback while there is nothing to stop or to tidy up."""
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()  # signals are the main thread's
    if not is_main or before is not signal.default_int_handler:  # in the background Ctrl-C stays ignored
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
