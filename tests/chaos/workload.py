"""Clients that use a cluster as people's programs do, and write down what they were told.

A client has one thread at a time. It asks for runs, some of them while another one is under way, stops
some, reads all of them while leaving and coming back through any gateway, and never gives up on a request:
it is repeated under its key until somebody answers.
"""

import asyncio
import base64
import json
import random
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import aiohttp
from chaos.history import TERMINAL, Acknowledged, Answer, Cancelled, History, Reading
from support.sse import END, frames_of

QUERY = urlencode({"stream_mode": "values,messages-tuple,updates,custom"})
LOG = "/mnt/user-data/workspace/effects.log"
STRATEGIES = ("enqueue", "enqueue", "interrupt", "rollback", "reject")
RETRY_SECONDS = 0.15
PATIENCE = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=30)
BROKEN = (aiohttp.ClientError, TimeoutError, ConnectionError)


class Client:
    """One user with a will of its own, drawn from the seed."""

    def __init__(
        self,
        name: str,
        *,
        seed: int,
        gateways: Mapping[str, str],
        history: History,
        session: aiohttp.ClientSession,
    ) -> None:
        self._name = name
        self._luck = random.Random(f"client {name} {seed}")
        self._gateways = gateways
        self._history = history
        self._session = session
        self._count = 0

    async def work(self, enough: asyncio.Event) -> None:
        """Start and follow runs until it is enough, then see the last ones through."""
        rounds = 0
        while not enough.is_set():
            thread_id = f"{self._name}-{rounds // 3}"
            rounds += 1
            await self._turn(thread_id)

    async def _turn(self, thread_id: str) -> None:
        """Ask for one run or a few of a thread, and read them all to their ends."""
        async with asyncio.TaskGroup() as readers:
            for _ in range(self._luck.choice((1, 1, 2, 3))):
                run = await self._submit(thread_id, self._luck.choice(STRATEGIES))
                if run is None:
                    continue
                for _ in range(self._luck.choice((1, 1, 2))):
                    readers.create_task(self._follow(run, random.Random(self._luck.random())))
                if self._luck.random() < 0.25:
                    await asyncio.sleep(self._luck.uniform(0, 1.0))
                    await self._cancel(run)
                await asyncio.sleep(self._luck.choice((0, self._luck.uniform(0, 0.8))))

    async def _submit(self, thread_id: str, strategy: str) -> Acknowledged | None:
        self._count += 1
        tag = f"{self._name}r{self._count}"
        body = {
            "input": {"messages": [{"type": "human", "content": f"{_script(self._luck, tag)} do {tag}."}]},
            "multitask_strategy": strategy,
            "on_disconnect": "continue",
            "stream_mode": ["values", "messages-tuple", "updates", "custom"],
            "durability": self._luck.choice(("async", "async", "sync")),
        }
        while True:
            status, answer = await self._ask(
                "POST", f"/threads/{thread_id}/runs", json=body, headers={"Idempotency-Key": tag}
            )
            if status == 200:
                run = Acknowledged(answer["run_id"], thread_id, tag, strategy)
                self._history.runs.append(run)
                return run
            if status == 409:
                self._history.refused += 1
                return None
            await self._odd(status, "create")

    async def _cancel(self, run: Acknowledged) -> None:
        action = self._luck.choice(("interrupt", "rollback"))
        query = urlencode({"action": action, "wait": self._luck.choice((0, 1))})
        while True:
            status, _ = await self._ask("POST", f"{_path(run)}/cancel?{query}")
            if status in (202, 204):
                self._history.cancels.append(Cancelled(run.run_id, action))
                return
            if status == 409:  # it has ended, maybe by an earlier try whose answer was lost
                return
            await self._odd(status, "cancel")

    async def _follow(self, run: Acknowledged, luck: random.Random) -> None:
        """Read a run to its end through as many connections as it takes."""
        reading = Reading(run.run_id)
        self._history.readings.append(reading)
        while not reading.has_ended:
            name = luck.choice(list(self._gateways))
            most = luck.choice((3, 30, 10_000, 10_000))
            try:
                await self._read(run, reading, self._gateways[name], most)
            except BROKEN as error:
                self._history.oddities[f"stream: {type(error).__name__}"] += 1
                await asyncio.sleep(RETRY_SECONDS)
            if luck.random() < 0.3:
                await self.look(run, name)
        await self.look(run, luck.choice(list(self._gateways)))

    async def _read(self, run: Acknowledged, reading: Reading, gateway: str, most: int) -> None:
        headers = {"Last-Event-ID": reading.frames[-1].id} if reading.frames else {}
        url = f"{gateway}{_path(run)}/stream?{QUERY}"
        reading.connections += 1
        async with self._session.get(url, headers=headers, timeout=PATIENCE) as response:
            if response.status != 200:
                await self._odd(response.status, "stream")
                return
            async for frame in frames_of(response):
                reading.frames.append(frame)
                reading.has_ended = frame.kind == END
                most -= 1
                if reading.has_ended or most <= 0:
                    return

    async def look(self, run: Acknowledged, gateway: str) -> Answer | None:
        """Ask one gateway how a run stands, and note the answer."""
        status, body = await self._ask("GET", _path(run), gateway=gateway)
        if status != 200:
            await self._odd(status, "look")
            return None
        answer = Answer(
            run.run_id, gateway, body["status"], body["attempt"], body.get("stop_reason"), body.get("error")
        )
        self._history.answers.append(answer)
        return answer

    async def ended(self, run: Acknowledged, gateway: str, *, seconds: float) -> Answer | None:
        """Ask until a run has ended, or return the last answer when that takes too long."""
        answer: Answer | None = None
        deadline = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < deadline:
            answer = await self.look(run, gateway)
            if answer is not None and answer.status in TERMINAL:
                return answer
            await asyncio.sleep(RETRY_SECONDS)
        return answer

    async def _ask(
        self, method: str, path: str, *, gateway: str | None = None, **more: Any
    ) -> tuple[int, Any]:
        """Return status and body; 0 when nobody answered."""
        name = gateway or self._luck.choice(list(self._gateways))
        try:
            async with self._session.request(
                method, f"{self._gateways[name]}{path}", timeout=PATIENCE, **more
            ) as response:
                raw = await response.read()
                return response.status, json.loads(raw) if raw else None
        except (*BROKEN, json.JSONDecodeError):
            return 0, None

    async def _odd(self, status: int, what: str) -> None:
        self._history.oddities[f"{what}: {status or 'no answer'}"] += 1
        await asyncio.sleep(RETRY_SECONDS)


def _path(run: Acknowledged) -> str:
    return f"/threads/{run.thread_id}/runs/{run.run_id}"


def _script(luck: random.Random, tag: str) -> str:
    """Return what the model is to do in a run: some commands that can be counted, and an answer."""
    steps: list[dict[str, Any]] = []
    for number in range(luck.choice((0, 1, 1, 2, 3))):
        nap = luck.choice((0, 0, luck.uniform(0, 0.6)))
        command = f"echo {tag}:{number} | tee -a {LOG}; sleep {nap:.2f}"
        steps.append({"calls": [{"name": "bash", "args": {"description": tag, "command": command}}]})
    answer = f"did {tag}. " + "".join(f"w{number} " for number in range(luck.choice((5, 40, 120))))
    steps.append({"text": answer, "gap": luck.choice((0, 5, 15))})
    return f"[[bench script {base64.b64encode(json.dumps(steps).encode()).decode()}]]"
