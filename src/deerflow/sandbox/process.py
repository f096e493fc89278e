"""Starts a program, follows its output and makes sure that it ends."""

import asyncio
import os
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

CHUNK_BYTES = 65_536
CHUNKS_AT_ONCE = 16
"""How much one wake-up reads before others get their turn."""
REMAINS_SECONDS = 2.0
"""How long the remains of an ended program may take to go, and its output to close."""


Watch = Callable[[int], Awaitable[str]]
"""Follows a process by its id and returns a sentence when it has to be stopped."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What is to be started."""

    argv: Sequence[str]
    env: Mapping[str, str]
    kill: Callable[[int], None]
    """Ends the process and all it started, given its id; it is called once or more."""
    pass_fds: Sequence[int] = ()
    stdin: int | None = None
    """What it reads from; None for nothing at all."""
    cwd: str | None = None
    watch: Watch | None = None
    started: Callable[[int], None] | None = None
    """Called with the process's id, which is also its group's, once it runs."""
    gone: Callable[[], Awaitable[None]] | None = None
    """Returns when all that the process started has ended, which may be shortly after itself."""


class Sink(Protocol):
    """Takes what a program prints."""

    @property
    def is_too_much(self) -> bool:
        """Tell whether the program may stop."""

    def feed(self, data: bytes) -> None:
        """Take the next piece."""

    def text(self) -> str:
        """Return what it was, for a person."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How it ended."""

    exit_code: int
    stopped: str | None = None
    """Why we stopped it; None when it ended by itself."""
    timed_out: bool = False


async def run(launch: Launch, output: Sink, *, timeout: float) -> Ending:
    """Run a program to its end, which is at the latest when `timeout` is over or the caller is cancelled."""
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
        # also on cancellation: nothing may run on, and the process has to be reaped
        if not exited.done():
            launch.kill(process.pid)
        await _settle(launch, exited, pump)
    code = process.returncode
    return Ending(code if code >= 0 else 128 - code, stopped, timed_out)


async def _until_over(
    launch: Launch, pid: int, exited: "asyncio.Future[None]", pump: "_Pump", timeout: float
) -> tuple[str | None, bool]:
    """Wait for the first reason to end: the program, too much output, a limit or the time."""
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
            await asyncio.wait([watch])  # not the watch itself: its cancellation is no one else's
            if not watch.cancelled():
                watch.result()


async def _settle(launch: Launch, exited: "asyncio.Future[None]", pump: "_Pump") -> None:
    """Wait until the process is reaped and its pipe read, even when the caller is cancelled meanwhile."""
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
    # not subprocess.DEVNULL, which could be written to
    empty = os.open(os.devnull, os.O_RDONLY)
    try:
        # From this thread, which is the event loop's: a sandbox dies with the thread that started it.
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
    """Wait for the process without a thread where the system can tell us, else with one."""
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
    """Wait until there is something to read, which for a process's descriptor means that it ended."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(fd, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(fd)


class _Pump:
    """Reads a pipe whenever there is something, up to what the buffer allows."""

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
