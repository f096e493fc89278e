"""Handle Ctrl-C while a command is still loading; imports only fast modules itself."""

import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any


def quiet_end() -> AbstractContextManager[None]:
    """Let Ctrl-C end the process without a traceback while there is nothing to stop or clean up."""
    return _exchanged(signal.default_int_handler, signal.SIG_DFL)


def heard() -> AbstractContextManager[None]:
    """Raise `KeyboardInterrupt` on Ctrl-C in a command, even inside of `quiet_end`."""
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
