"""The first process inside a sandbox, seen from outside: when it is gone, all in its namespace are."""

import asyncio
import os
import re
import signal
from contextlib import suppress
from typing import Self

from deerflow.sandbox.process import readable

_CHILD = re.compile(rb'"child-pid":\s*(\d+)\s*[,}\n]')


class InnerProcess:
    """Learns from bwrap's `--info-fd` who the first inner process is.

    The kernel reports that process dead only after it has ended every other one of its namespace,
    while bwrap itself is already gone a moment earlier.
    """

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        self._said = b""
        self._pidfd: int | None = None
        self._loop = asyncio.get_running_loop()
        os.set_blocking(self._reader, False)
        self.known: asyncio.Future[int | None] = self._loop.create_future()
        """The process's id as this host knows it; None when bwrap ended without one."""

    def __enter__(self) -> Self:
        self._loop.add_reader(self._reader, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._reader)
        os.close(self._reader)
        self.close_writer()
        if self._pidfd is not None:
            os.close(self._pidfd)
        self.known.cancel()

    def close_writer(self) -> None:
        """Close our copy of the end that bwrap writes to, so that its end is seen."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def kill(self) -> None:
        """End it, if we know who it is."""
        if self._pidfd is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def pid(self) -> int | None:
        """Return the process's id if bwrap has said it, which it does before anything runs inside."""
        self._read()
        return self.known.result() if self.known.done() else None

    async def gone(self) -> None:
        """Wait until no process of the sandbox is left."""
        self._read()
        if self._pidfd is not None:
            await readable(self._pidfd)
            self._reap(self._pidfd)

    def _reap(self, pidfd: int) -> None:
        with suppress(ChildProcessError):  # an orphan is ours only where we are the first process
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)

    def _read(self) -> None:
        try:
            data = os.read(self._reader, 4096)
        except BlockingIOError:
            return
        self._said += data
        found = _CHILD.search(self._said)
        if found and not self.known.done():
            self._watch(int(found.group(1)))
        if not data:
            self._loop.remove_reader(self._reader)
            if not self.known.done():
                self.known.set_result(None)

    def _watch(self, pid: int) -> None:
        try:
            self._pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            pid = 0
        self.known.set_result(pid or None)
