"""MCP over the standard streams of a process, with limits on everything it may send."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from deerflow.domain.json_counter import JsonCounter
from deerflow.mcp.base import Limits
from deerflow.mcp.bounds import Incoming, cut
from deerflow.programs import Program, running_program

Streams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]

MAX_WORDS_CHARS = 300
_CHUNK_BYTES = 65_536


class StdioTransport:
    """The stdio transport to a server process, one JSON message per line."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], folder: Path, limits: Limits
    ) -> None:
        self._command = command
        self._env = env
        self._folder = folder
        self._limits = limits
        self._program: Program | None = None
        self._problem: str | None = None
        self._other_lines = 0
        self._burst = 0
        self._burst_began = 0.0
        self.over = asyncio.Event()
        """Set when the connection has ended."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Streams]:
        """Run the process, and yield the streams of incoming and outgoing messages."""
        async with running_program(self._command, env=self._env, cwd=self._folder) as self._program:
            into, incoming = anyio.create_memory_object_stream[Incoming](0)
            outgoing, out = anyio.create_memory_object_stream[SessionMessage](0)
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._read, self._program, into)
                    tasks.start_soon(self._write, self._program, out)
                    try:
                        yield incoming, outgoing
                    finally:
                        tasks.cancel_scope.cancel()
            finally:
                for stream in (into, incoming, outgoing, out):
                    stream.close()

    async def why(self) -> str:
        """Return why the connection ended."""
        code, what = None, self._problem
        if self._program is not None:
            code = await self._program.exit_code(is_urgent=what is not None)
        if what is None:
            what = "it closed its output" if code is None else f"it ended with exit code {code}"
        words = self._program.last_words[-MAX_WORDS_CHARS:] if self._program is not None else ""
        return f"{what}; its last output: {words}" if words else what

    async def _read(self, program: Program, into: MemoryObjectSendStream[Incoming]) -> None:
        buffer = bytearray()
        try:
            with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                while self._problem is None and (chunk := await program.stdout.read(_CHUNK_BYTES)):
                    buffer += chunk
                    if b"\n" in chunk:
                        *lines, buffer = buffer.split(b"\n")
                        for line in lines:
                            await self._read_line(line, into)
                    if len(buffer) > self._limits.message_bytes:
                        self._problem = f"it sent a message of more than {self._limits.message_bytes} bytes"
        finally:
            self.over.set()
            into.close()

    async def _read_line(self, line: bytearray, into: MemoryObjectSendStream[Incoming]) -> None:
        if not line or line.isspace() or self._problem is not None:
            return
        self._count()
        if await self._has_too_many_parts(line):
            self._problem = f"it sent a message of more than {self._limits.message_parts} parts"
            return
        try:
            message = cut(jsonrpc_message_adapter.validate_json(line, by_name=False), self._limits)
        except ValueError:
            self._other_lines += 1
            if self._other_lines > self._limits.other_lines:
                self._problem = "it writes something other than MCP messages to its output"
            return
        if message is not None:
            await into.send(SessionMessage(message))

    async def _has_too_many_parts(self, line: bytearray) -> bool:
        """Count in chunks, yielding to the event loop in between; short lines cannot exceed the limit."""
        if len(line) <= _CHUNK_BYTES:
            return False
        counter = JsonCounter()
        for start in range(0, len(line), _CHUNK_BYTES):
            counter.feed(bytes(line[start : start + _CHUNK_BYTES]))
            if counter.count > self._limits.message_parts:
                return True
            await asyncio.sleep(0)
        return False

    def _count(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._burst_began > self._limits.burst_seconds:
            self._burst_began, self._burst = now, 0
        self._burst += 1
        if self._burst > self._limits.burst_messages:
            self._problem = (
                f"it sends too much: {self._burst} messages within {self._limits.burst_seconds:g} seconds"
            )

    async def _write(self, program: Program, out: MemoryObjectReceiveStream[SessionMessage]) -> None:
        with suppress(OSError, anyio.ClosedResourceError):
            async for sent in out:
                text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                program.stdin.write(text.encode() + b"\n")
                await program.stdin.drain()
        out.close()  # later sends fail at once
