"""Starts a program, reads its output and guarantees that it ends."""

import asyncio
import os
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

CHUNK_BYTES = 65_536
CHUNKS_AT_ONCE = 16
"""Number of chunks that one wake-up reads before it yields to the event loop."""
REMAINS_SECONDS = 2.0
"""How long the descendants of an exited program may take to end, and its output pipe to close."""


Watch = Callable[[int], Awaitable[str]]
"""Monitors a process by its pid and returns the reason when it has to be stopped."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start and stop a program."""

    argv: Sequence[str]
    env: Mapping[str, str]
    kill: Callable[[int], None]
    """Kills the process with this pid and all its descendants; may be called repeatedly."""
    pass_fds: Sequence[int] = ()
    stdin: int | None = None
    """Descriptor of its standard input; None for an empty one."""
    cwd: str | None = None
    watch: Watch | None = None
    started: Callable[[int], None] | None = None
    """Called with the pid, which is also the process group id, once the process runs."""
    gone: Callable[[], Awaitable[None]] | None = None
    """Returns when all descendants have ended, which may be shortly after the process itself."""


class Sink(Protocol):
    """Receives a program's output."""

    @property
    def is_too_much(self) -> bool:
        """Return whether the output limit is exceeded, so that the program can be stopped."""

    def feed(self, data: bytes) -> None:
        """Append the next chunk."""

    def text(self) -> str:
        """Return the output as readable text."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a program ended."""

    exit_code: int
    stopped: str | None = None
    """Why it was stopped; None when it ended by itself or timed out."""
    timed_out: bool = False


async def run(launch: Launch, output: Sink, *, timeout: float) -> Ending:
    """Run a program to its end; kill it when `timeout` expires or the caller is cancelled."""
    reader, writer = os.pipe()
    try:
        process = _start(launch, writer)
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    if launch.started:
        launch.started(process.pid)
    pump = _Pump(reader, output)
    exited = asyncio.ensure_future(_exit_of(process))
    try:
        stopped, timed_out = await _until_over(launch, process.pid, exited, pump, timeout)
    finally:
        # also on cancellation: nothing may keep running, and the process must be reaped
        if not exited.done():
            launch.kill(process.pid)
        await _settle(launch, exited, pump)
    code = process.returncode
    return Ending(code if code >= 0 else 128 - code, stopped, timed_out)


async def _until_over(
    launch: Launch, pid: int, exited: "asyncio.Future[None]", pump: "_Pump", timeout: float
) -> tuple[str | None, bool]:
    """Wait for the first of: program exit, too much output, an exceeded limit, or the timeout."""
    watch = asyncio.ensure_future(launch.watch(pid)) if launch.watch else None
    events = {exited, pump.too_much, *([watch] if watch else ())}
    try:
        done, _ = await asyncio.wait(events, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if exited in done:
            return None, False
        if pump.too_much in done:
            return "it printed too much; send the output to a file and look at parts of it", False
        if watch and watch in done:
            return watch.result(), False
        return None, True
    finally:
        if watch:
            watch.cancel()
            await asyncio.wait([watch])  # not `await watch`: its cancellation must not propagate to this task
            if not watch.cancelled():
                watch.result()


async def _settle(launch: Launch, exited: "asyncio.Future[None]", pump: "_Pump") -> None:
    """Wait until the process is reaped and its pipe is drained, even when the caller is cancelled."""
    ending = asyncio.ensure_future(_reaped(launch, exited, pump))
    is_cancelled = False
    while not ending.done():
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            is_cancelled = True
    ending.result()
    if is_cancelled:
        raise asyncio.CancelledError


async def _reaped(launch: Launch, exited: "asyncio.Future[None]", pump: "_Pump") -> None:
    try:
        await exited
        with suppress(TimeoutError):
            async with asyncio.timeout(REMAINS_SECONDS):
                if launch.gone:
                    await launch.gone()
                await asyncio.shield(pump.closed)
    finally:
        pump.close()


def _start(launch: Launch, writer: int) -> "subprocess.Popen[bytes]":
    # not subprocess.DEVNULL, which is opened for writing too
    empty = os.open(os.devnull, os.O_RDONLY)
    try:
        # Start it in the event loop's thread: the exit of the starting thread sends the parent-death signal.
        return subprocess.Popen(
            launch.argv,
            stdin=empty if launch.stdin is None else launch.stdin,
            stdout=writer,
            stderr=writer,
            pass_fds=launch.pass_fds,
            env=launch.env,
            cwd=launch.cwd,
            start_new_session=True,
        )
    finally:
        os.close(empty)


async def _exit_of(process: "subprocess.Popen[bytes]") -> None:
    """Wait for the process with a pidfd where available, else in a thread."""
    try:
        watched = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        await asyncio.to_thread(process.wait)
        return
    try:
        await readable(watched)
    finally:
        os.close(watched)
    process.wait()


async def readable(fd: int) -> None:
    """Wait until `fd` is readable; a pidfd becomes readable when its process exits."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(fd, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(fd)


class _Pump:
    """Reads a pipe from the event loop and feeds the sink until its limit is exceeded."""

    def __init__(self, reader: int, output: Sink) -> None:
        loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.too_much: asyncio.Future[None] = loop.create_future()
        self._reader = reader
        self._output = output
        self._loop = loop
        self._is_open = True
        os.set_blocking(reader, False)
        loop.add_reader(reader, self._read)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
        for future in (self.closed, self.too_much):
            future.cancel()

    def _read(self) -> None:
        for _ in range(CHUNKS_AT_ONCE):
            try:
                data = os.read(self._reader, CHUNK_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._loop.remove_reader(self._reader)
                if not self.closed.done():
                    self.closed.set_result(None)
                return
            if not self._output.is_too_much:
                self._output.feed(data)
            elif not self.too_much.done():
                self.too_much.set_result(None)
