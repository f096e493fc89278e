"""The two sides of a fan-out: raw agents under `asyncio.gather` in a process of their own; the gateway."""

import asyncio
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

from benchmarks.support.arena import ROOT, Arena, running


@dataclass(frozen=True, slots=True)
class Fan:
    """Seconds from the first task's start to the last one's end, and of the whole run."""

    tasks: float
    whole: float


def gateway_fan(arena: Arena, tasks: int, seconds: float) -> Fan:
    """Time one run that starts so many tasks in one reply."""
    milliseconds = round(seconds * 1000)
    text = f"go [[bench fanout total={tasks} per={tasks} sub={milliseconds} n=5]]"
    context = {"subagent_enabled": True, "max_concurrent_subagents": tasks}
    return asyncio.run(_timed(arena, text, context, tasks))


async def _timed(arena: Arena, text: str, context: dict[str, object], tasks: int) -> Fan:
    body = {
        "input": {"messages": [{"type": "human", "content": text}]},
        "stream_mode": ["custom"],
        "context": context,
    }
    started = time.perf_counter()
    reader, writer = await arena.post(f"/api/threads/{uuid.uuid4()}/runs/stream", body)
    first = last = 0.0
    seen, done = b"", 0
    while piece := await reader.read(1 << 16):
        now = time.perf_counter()
        seen += piece
        if not first and b'"type":"task_started"' in seen:
            first = now
        ended = seen.count(b'"type":"task_completed"')
        if ended > done:
            done, last = ended, now
        if b"event: end\n" in seen[-400:]:
            break
    writer.close()
    assert done == tasks, f"{done} of {tasks} tasks were done"
    return Fan(last - first, time.perf_counter() - started)


class RawFan:
    """Bare `create_agent` agents in a process of their own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    @classmethod
    @contextmanager
    def open(cls, model_url: str) -> Iterator[Self]:
        """Start the process and end it with the block."""
        command = [sys.executable, "-m", "benchmarks.support.fan", model_url]
        with running(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
            yield cls(process)

    def gather(self, agents: int, seconds: float, at_once: int) -> float:
        """Return the seconds that so many agents take, at most `at_once` of them at a time."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps([agents, seconds, at_once]) + "\n")
        stdin.flush()
        return float(stdout.readline())


async def _raw(model_url: str) -> None:
    model = ChatOpenAI(model="bench", base_url=model_url, api_key="sk-bench", streaming=True)
    agent = create_agent(model, [], system_prompt="You are helpful.")
    while line := await asyncio.to_thread(sys.stdin.readline):
        agents, seconds, at_once = json.loads(line)
        limit = asyncio.Semaphore(at_once)
        text = f"Do a part. [[bench answer n=5 first={round(seconds * 1000)}]]"

        async def one(limit: asyncio.Semaphore = limit, text: str = text) -> None:
            async with limit:
                await agent.ainvoke({"messages": [("user", text)]})

        started = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(agents)))
        print(time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    asyncio.run(_raw(sys.argv[1]))
