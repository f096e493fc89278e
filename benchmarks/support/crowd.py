"""Many runs at once over HTTP: everything that comes is kept, and looked at when the clock has stopped."""

import asyncio
import json
import re
import time
from dataclasses import dataclass

import psutil
from typing_extensions import override

from benchmarks.support.arena import UI_MODES, Arena

_CREATED_AT_ONCE = 20
_FIRST = b'"content":"zq'
_END = b"event: end\n"
_SPOKEN = re.compile(rb'event: messages\ndata: \[\{"content":"([^"]*)"[^\n]*"type":"AIMessageChunk"')
_TOKEN = re.compile(rb"zq(\d+) ")
_LIMIT_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Crowd:
    """What became of runs that started together."""

    seconds: float
    """From the first request to the last end."""
    firsts: list[float]
    """Seconds to the first token, of each run that had one."""
    complete: int
    """Runs that ended well with every token in its place."""
    cpu_seconds: float
    """What the side that ran them used of the processor."""

    def p95(self) -> float:
        """Return the time to the first token that 95 of 100 runs keep."""
        ordered = sorted(self.firsts)
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))] if ordered else float("inf")


def gateway_crowd(arena: Arena, text: str, runs: int, *, tokens: int) -> Crowd:
    """Start so many runs at the same moment, each in a thread that exists already, and read them all."""
    return asyncio.run(_together(arena, text, runs, tokens))


def raw_crowd(arena: Arena, text: str, runs: int, *, tokens: int) -> Crowd:
    """Do the same with the raw agent, in its process."""
    done = arena.raw_together(text, runs)
    complete = sum(said == tokens for _, said in done["runs"])
    firsts = [first for first, _ in done["runs"] if first]
    return Crowd(done["seconds"], firsts, complete, done["cpu_seconds"])


async def _together(arena: Arena, text: str, runs: int, tokens: int) -> Crowd:
    threads = await _new_threads(arena, runs)
    body = {"input": {"messages": [{"type": "human", "content": text}]}, "stream_mode": UI_MODES}
    raw = json.dumps(body).encode()
    server = psutil.Process(arena.server_pid)
    before, started = _cpu(server), time.perf_counter()
    async with asyncio.timeout(_LIMIT_SECONDS):
        readers = await asyncio.gather(*(_run(arena.port, thread, raw) for thread in threads))
    seconds = time.perf_counter() - started
    firsts = [reader.first for reader in readers if reader.first]
    complete = sum(reader.spoken() == list(range(tokens)) for reader in readers)
    return Crowd(seconds, firsts, complete, _cpu(server) - before)


async def _new_threads(arena: Arena, count: int) -> list[str]:
    places = asyncio.Semaphore(_CREATED_AT_ONCE)

    async def new() -> str:
        async with places:
            return await arena.new_thread()

    return await asyncio.gather(*(new() for _ in range(count)))


async def _run(port: int, thread: str, body: bytes) -> "_Reader":
    started = time.perf_counter()
    head = (
        f"POST /api/threads/{thread}/runs/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    loop = asyncio.get_running_loop()
    transport, reader = await loop.create_connection(lambda: _Reader(started), "127.0.0.1", port)
    transport.write(head.encode() + body)
    await reader.ended
    transport.abort()
    return reader


class _Reader(asyncio.Protocol):
    """Keeps what a run says; cheap, since it shares the machine with the server that is measured."""

    def __init__(self, started: float) -> None:
        self.first = 0.0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._started = started
        self._pieces: list[bytes] = []
        self._tail = b""

    @override
    def data_received(self, data: bytes) -> None:
        seen = self._tail + data
        if not self.first and _FIRST in seen:
            self.first = time.perf_counter() - self._started
        if _END in seen and not self.ended.done():
            self.ended.set_result(None)
        self._tail = seen[-len(_FIRST) :]
        self._pieces.append(data)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def spoken(self) -> list[int]:
        """Return the tokens in the order in which they came; none of a run that did not end well."""
        whole = b"".join(self._pieces)
        if _END not in whole or b"event: error\n" in whole:
            return []
        said = b"".join(_SPOKEN.findall(_without_lengths(whole)))
        return [int(number) for number in _TOKEN.findall(said)]


def _without_lengths(answer: bytes) -> bytes:
    """Return the body of an answer, taken out of its chunks."""
    body, pieces = answer.partition(b"\r\n\r\n")[2], []
    while body:
        length, _, rest = body.partition(b"\r\n")
        size = int(length, 16)
        pieces.append(rest[:size])
        body = rest[size + 2 :]
    return b"".join(pieces)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
