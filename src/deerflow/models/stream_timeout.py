"""Read and chunk timeouts of a stream, with one timer for the whole stream instead of one per read."""

import asyncio
from math import inf

import aiohttp


class SilenceError(Exception):
    """The server sent nothing, or no chunk, within the timeout."""

    def __init__(self, seconds: float, *, is_alive: bool) -> None:
        super().__init__(f"silent for {seconds:g} s")
        self.seconds = seconds
        self.is_alive = is_alive
        """Whether bytes still arrived, but only keep-alive comments."""


class SilenceWatch:
    """Makes a read fail with SilenceError after the timeout.

    Only time spent waiting in a read counts: a slow consumer is not the server's fault.
    """

    def __init__(
        self, content: aiohttp.StreamReader, *, read_seconds: float | None, chunk_seconds: float | None
    ) -> None:
        self._content = content
        self._read_seconds = read_seconds or inf
        self._chunk_seconds = chunk_seconds or inf
        self._loop = asyncio.get_running_loop()
        self._read_since: float | None = None
        self._chunk_since = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._period = min(self._read_seconds, self._chunk_seconds)
        if self._period < inf:
            self._timer = self._loop.call_later(self._period, self._check)

    def wait_for_chunk(self) -> None:
        """Start the timeout of the next chunk, which may take several reads."""
        self._chunk_since = self._loop.time()

    async def read(self) -> bytes:
        """Return the next bytes from the connection; empty at its end."""
        self._read_since = self._loop.time()
        try:
            return await self._content.readany()
        finally:
            self._read_since = None

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        now = self._loop.time()
        due = now + self._period
        if self._read_since is not None:
            due = min(self._read_since + self._read_seconds, self._chunk_since + self._chunk_seconds)
        if due > now:
            self._timer = self._loop.call_at(due, self._check)
        elif self._read_since is not None:
            is_alive = self._read_since + self._read_seconds > now
            seconds = self._chunk_seconds if is_alive else self._read_seconds
            self._content.set_exception(SilenceError(seconds, is_alive=is_alive))
