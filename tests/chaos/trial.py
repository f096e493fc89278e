"""One trial: clients at work, a nemesis that carries out a plan, and what is left afterwards."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
from chaos.checker import Verdict, judge
from chaos.cluster import Cluster, belongs_to, leftovers
from chaos.history import Acknowledged, Aftermath, Answer, History, ThreadAfter
from chaos.plan import Fault, plan_faults
from chaos.workload import LOG, QUERY, Client
from support.sse import NO_LIMIT, Frame, read_stream

SETTLE_SECONDS = 90
"""How long runs may take to their ends once nothing is hurt any more."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one seed."""

    seed: int
    faults: Sequence[Fault]
    history: History
    after: Aftermath
    verdict: Verdict
    seconds: float

    @property
    def statuses(self) -> Mapping[str, int]:
        return Counter(answers[0].status for answers in self.after.answers.values() if answers)

    @property
    def attempts(self) -> list[int]:
        return [
            max(answer.attempt for answer in answers) for answers in self.after.answers.values() if answers
        ]

    @property
    def reconnects(self) -> int:
        return sum(reading.connections - 1 for reading in self.history.readings)


async def hold_trial(cluster: Cluster, *, seed: int, faults: int, clients: int = 5) -> Trial:
    """Start a cluster, hurt it while it is used, heal it, stop it, and judge."""
    began = time.monotonic()
    plan = plan_faults(seed, cluster.targets, faults)
    history, orphans = History(), list[str]()
    await cluster.start()
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=NO_LIMIT) as session:
        crew = [
            Client(
                f"s{seed}c{number}",
                seed=seed,
                gateways=cluster.gateways,
                history=history,
                session=session,
            )
            for number in range(clients)
        ]
        enough = asyncio.Event()
        at_work = [asyncio.create_task(client.work(enough)) for client in crew]
        orphans += await hurt(cluster, plan)
        enough.set()
        # A client waits for the ends of its runs; one that never comes is for the checker to tell.
        _, stuck = await asyncio.wait(at_work, timeout=SETTLE_SECONDS)
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)
        for task in set(at_work) - stuck:
            task.result()
        after = await _look_back(cluster, crew[0], history, session)
    await cluster.stop()
    orphans += await asyncio.to_thread(leftovers, belongs_to(cluster.home))
    after = replace(after, orphans=orphans)
    for name, member in cluster.members.items():
        if member.stubborn:
            history.oddities[f"{name} that did not end on SIGTERM"] += member.stubborn
    verdict = judge(history, after)
    return Trial(seed, plan, history, after, verdict, time.monotonic() - began)


async def hurt(cluster: Cluster, plan: Sequence[Fault]) -> list[str]:
    """Carry out a plan; return the processes that outlived the ones they belonged to."""
    blows: list[asyncio.Task[list[str]]] = []
    async with asyncio.TaskGroup() as nemesis:
        for fault in plan:
            await asyncio.sleep(fault.pause)
            member = cluster.members[fault.target]
            blows.append(nemesis.create_task(member.suffer(fault.kind, fault.seconds)))
            await asyncio.sleep(0)
            if len(cluster.members) == 1:  # nobody else is there to be hurt meanwhile
                await blows[-1]
    return [process for blow in blows for process in blow.result()]


async def _look_back(
    cluster: Cluster, client: Client, history: History, session: aiohttp.ClientSession
) -> Aftermath:
    """Ask every gateway for everything, twice for what must not change."""
    names = list(cluster.gateways)
    answers: dict[str, list[Answer]] = {}
    logs: dict[str, list[list[Frame]]] = {}
    for run in history.runs:
        last = await client.ended(run, names[0], seconds=SETTLE_SECONDS if not answers else 30)
        answers[run.run_id] = [last] if last is not None else []
    for run in history.runs:
        for name in (*names, *names):
            if (answer := await client.look(run, name)) is not None:
                answers[run.run_id].append(answer)
        logs[run.run_id] = [
            await _whole_log(session, cluster.gateways[name], run) for name in names if answers[run.run_id]
        ]
    threads = {run.thread_id: None for run in history.runs}
    found = {
        thread_id: await _thread(session, cluster.gateways[names[0]], thread_id) for thread_id in threads
    }
    return Aftermath(answers, logs, {name: thread for name, thread in found.items() if thread}, ())


async def _whole_log(session: aiohttp.ClientSession, api: str, run: Acknowledged) -> list[Frame]:
    try:
        async with asyncio.timeout(60):
            url = f"{api}/threads/{run.thread_id}/runs/{run.run_id}/stream?{QUERY}"
            return await read_stream(session, url)
    except (TimeoutError, aiohttp.ClientError):
        return []  # the checker says that there is no log


async def _thread(session: aiohttp.ClientSession, api: str, thread_id: str) -> ThreadAfter | None:
    async def ask(path: str, **body: Any) -> Any:
        url = f"{api}/threads/{thread_id}{path}"
        async with session.request("POST" if body else "GET", url, json=body or None) as response:
            return await response.json() if response.status == 200 else None

    thread, runs = await ask(""), await ask("/runs?limit=1000")
    if thread is None or runs is None:
        return None
    state, past = await ask("/state"), await ask("/history", limit=1000)
    return ThreadAfter(
        thread_id,
        thread["status"],
        [run["run_id"] for run in runs],
        (state or {}).get("values", {}).get("messages", []),
        [(_id(entry["checkpoint"]) or "", _id(entry["parent_checkpoint"])) for entry in past or []],
        await _effects(session, api, thread_id),
    )


def _id(checkpoint: Mapping[str, Any] | None) -> str | None:
    return None if checkpoint is None else checkpoint.get("checkpoint_id")


async def _effects(session: aiohttp.ClientSession, api: str, thread_id: str) -> list[str]:
    async with session.get(f"{api}/threads/{thread_id}/artifacts{LOG}") as response:
        return (await response.text()).split() if response.status == 200 else []


@contextmanager
def ended_at_last(cluster: Cluster) -> Iterator[Cluster]:
    """Leave no process behind, whatever happens in the block."""
    try:
        yield cluster
    finally:
        cluster.kill()
