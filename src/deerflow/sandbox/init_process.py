"""Tracks a sandbox's first process from the host: when it ends, all processes of its namespace have ended."""

import asyncio
import os
import re
import signal
from contextlib import suppress
from typing import Self

from deerflow.sandbox.process import readable

_CHILD = re.compile(rb'"child-pid":\s*(\d+)\s*[,}\n]')


class InnerProcess:
    """Reads the pid of the sandbox's first process from bwrap's `--info-fd`.

    The kernel reports that process as exited only after it has killed every other process of its
    namespace; bwrap itself exits a moment earlier.
    """

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        self._said = b""
        self._pidfd: int | None = None
        self._loop = asyncio.get_running_loop()
        os.set_blocking(self._reader, False)
        self.known: asyncio.Future[int | None] = self._loop.create_future()
        """The pid on this host; None when bwrap exited without reporting one."""

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
        """Close this process's copy of the write end, so that end of file is detected."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def kill(self) -> None:
        """Kill the process, if its pid is known."""
        if self._pidfd is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def pid(self) -> int | None:
        """Return the pid if bwrap has reported it, which it does before anything runs in the sandbox."""
        self._read()
        return self.known.result() if self.known.done() else None

    async def gone(self) -> None:
        """Wait until all processes of the sandbox have ended."""
        self._read()
        if self._pidfd is not None:
            await readable(self._pidfd)
            self._reap(self._pidfd)

    def _reap(self, pidfd: int) -> None:
        with suppress(ChildProcessError):  # orphans are our children only where this server is pid 1
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
