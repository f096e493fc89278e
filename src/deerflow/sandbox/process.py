"""Starts a program, collects its output and guarantees that it ends."""

import asyncio
import codecs
import os
import re
import subprocess
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from deerflow.sandbox.base import OutputListener

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
    exited: Callable[[], Awaitable[None]] | None = None
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
        await to_the_end(_reap(launch, exited, pump))
    code = process.returncode
    return Ending(code if code >= 0 else 128 - code, stopped, timed_out)


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Await `work` to completion even when this task is cancelled; re-raise the cancellation afterwards."""
    task = asyncio.ensure_future(work)
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            is_cancelled = True
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    if is_cancelled:
        raise asyncio.CancelledError  # a failure of the work must not hide the cancellation
    if error is not None:
        raise error


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


async def _reap(launch: Launch, exited: "asyncio.Future[None]", pump: "_Pump") -> None:
    try:
        await exited
        with suppress(TimeoutError):
            async with asyncio.timeout(REMAINS_SECONDS):
                if launch.exited:
                    await launch.exited()
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
        pidfd = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        await asyncio.to_thread(process.wait)
        return
    try:
        await readable(pidfd)
    finally:
        os.close(pidfd)
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


STREAM_MAX_BYTES = 1_048_576
"""Maximum output of one command that is streamed while it runs; the result has the rest."""
STOP_BYTES = 64 * 1024 * 1024
"""A command that prints more than this is stopped."""
UNCUT_BYTES = 8 * 1024 * 1024
"""Maximum output that is kept when the settings disable truncation."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links, device strings
    r"|\x1b[@-Z\\-_]?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f]"
)

Mask = Callable[[str], str]
"""Replaces host paths by virtual paths."""


def clean(text: str) -> str:
    """Return `text` without terminal sequences and control characters, with `\\n` line endings."""
    return _ESCAPES.sub("", text.replace("\r\n", "\n"))


class OutputBuffer:
    """Keeps the start and the end of an output and passes it to a listener as it arrives."""

    def __init__(
        self, *, max_chars: int, listener: OutputListener | None = None, mask: Mask | None = None
    ) -> None:
        self._max_chars = max_chars
        self._max_bytes = 2 * max_chars if max_chars else UNCUT_BYTES // 2
        """Maximum size of the start and of the end."""
        self._head = bytearray()
        self._tail = bytearray()
        self._mask = mask
        self._live = _LiveOutput(listener, mask) if listener else None
        self.total_bytes = 0

    @property
    def is_too_much(self) -> bool:
        return self.total_bytes > STOP_BYTES

    def feed(self, data: bytes) -> None:
        if self._live and self.total_bytes < STREAM_MAX_BYTES:
            self._live.feed(data)
        self.total_bytes += len(data)
        fits = self._max_bytes - len(self._head)
        if fits > 0:
            self._head += data[:fits]
            data = data[fits:]
        if data:
            self._tail += data
            if len(self._tail) > 2 * self._max_bytes:
                del self._tail[: -self._max_bytes]

    def text(self) -> str:
        """Return the kept output, truncated in the middle."""
        if self._live:
            self._live.finish()
        tail = self._tail[-self._max_bytes :]
        half = self._max_chars // 2 or self._max_bytes
        if self.total_bytes <= len(self._head) + len(tail):
            text = self._readable(bytes(self._head + tail))
            if not self._max_chars or len(text) <= self._max_chars:
                return text
            return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[len(text) - half :]}"
        start = self._readable(bytes(self._head))[:half]
        end = self._readable(bytes(tail))[-half:]
        removed = self.total_bytes - len(start.encode()) - len(end.encode())
        return f"{start}\n[{removed} bytes left out]\n{end}"

    def _readable(self, data: bytes) -> str:
        text = clean(data.decode("utf-8", "replace"))
        return self._mask(text) if self._mask else text


class _LiveOutput:
    """Decodes a stream incrementally; with a mask it buffers to whole lines, so that no path is split."""

    def __init__(self, listener: OutputListener, mask: Mask | None) -> None:
        self._listener = listener
        self._mask = mask
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._pending = ""

    def feed(self, data: bytes) -> None:
        text = self._pending + self._decode(data)
        self._pending = ""
        if self._mask and len(text) < 4096:
            text, newline, self._pending = text.rpartition("\n")
            text += newline
        self._publish(text)

    def finish(self) -> None:
        text, self._pending = self._pending + self._decode(b"", True), ""
        self._publish(text)

    def _publish(self, text: str) -> None:
        text = clean(text)
        if self._mask:
            text = self._mask(text)
        if text:
            self._listener(text)
