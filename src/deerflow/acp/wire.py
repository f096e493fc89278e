"""Line-delimited JSON over an agent's stdin and stdout, with limits on everything that the agent sends.

It is the transport of the SDK's connection. Malformed output or a flood of messages ends the stream, and
`problem` gives the reason for the caller's error message.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import orjson

_CHUNK_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Limits on what one agent may send in one call."""

    line_bytes: int = 16 * 1024 * 1024
    burst_messages: int = 5000
    """Maximum number of messages within `burst_seconds`; the fastest models emit about 200 words a second."""
    burst_seconds: float = 10
    total_messages: int = 200_000
    invalid_lines: int = 100
    """Maximum number of lines that are not messages; some programs print a banner."""


class AgentWire:
    """Sends and receives messages of an agent, one JSON object per line."""

    def __init__(
        self, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader, limits: WireLimits | None = None
    ) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._limits = limits or WireLimits()
        self._buffer = bytearray()
        self._searched = 0
        self._invalid_lines = 0
        self._burst_began = 0.0
        self._burst = self._total = 0
        self.problem: str | None = None
        """Why reading stopped, if the agent caused it."""

    async def send(self, message: dict[str, Any]) -> None:
        """Write one message; wait while the pipe is full."""
        self._stdin.write(orjson.dumps(message) + b"\n")
        await self._stdin.drain()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None when the agent has ended or violated a limit."""
        while self.problem is None:
            line = await self._line()
            if line is None:
                return None
            message = parse_message(line)
            if message is not None:
                self._count()
                await asyncio.sleep(0)  # let the previous message be handled before this one
                return message if self.problem is None else None
            self._count_invalid(line)
        return None

    async def close(self) -> None:
        """Close the agent's stdin."""
        self._stdin.close()

    async def _line(self) -> bytes | None:
        while (end := self._buffer.find(b"\n", self._searched)) < 0:
            self._searched = len(self._buffer)
            if self._searched > self._limits.line_bytes:
                self.problem = f"it sent a line of more than {self._limits.line_bytes} bytes"
                return None
            block = await self._stdout.read(_CHUNK_BYTES)
            if not block:
                if self._buffer.strip():
                    self.problem = "it ended in the middle of a message"
                return None
            self._buffer += block
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        return line

    def _count(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._burst_began > self._limits.burst_seconds:
            self._burst_began, self._burst = now, 0
        self._burst += 1
        self._total += 1
        limits = self._limits
        if self._burst > limits.burst_messages:
            seconds = f"{limits.burst_seconds:g} seconds"
            self.problem = f"it sends too much: more than {limits.burst_messages} messages within {seconds}"
        elif self._total > limits.total_messages:
            self.problem = f"it sends too much: more than {limits.total_messages} messages in one call"

    def _count_invalid(self, line: bytes) -> None:
        self._invalid_lines += bool(line.strip())
        if self._invalid_lines > self._limits.invalid_lines:
            start = line[:80].decode(errors="replace")
            self.problem = f"its output is not the protocol's, such as {start!r}"


def parse_message(line: bytes) -> dict[str, Any] | None:
    """Return the request, notification or response on a line; None if it is not a message."""
    try:
        message = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(message, dict):
        return None
    if "method" in message:
        return message if isinstance(message["method"], str) else None
    return message if isinstance(message.get("id"), int) and _is_answer(message) else None


def _is_answer(message: dict[str, Any]) -> bool:
    return isinstance(message.get("error"), dict) or "result" in message
