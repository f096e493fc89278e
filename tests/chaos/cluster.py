"""The processes that a trial hurts: one server on SQLite, or gateways, workers and a database."""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
from chaos.plan import Kind, Target
from support.gateway import GatewayProcess, WorkerProcess
from typing_extensions import override

GONE_SECONDS = 30
"""How long the children of a killed process may take to follow it."""
RECOVER_SECONDS = 300
SETTINGS: dict[str, Any] = {
    # Ends in error are for runs that kill their server; here it is never the run's fault.
    "runs": {"max_attempts": 1000},
    "guardrails": {"rules": [{"tool": "bash", "action": "allow"}]},
    "title": {"enabled": False},
}


class Member(ABC):
    """A process of the cluster that can be hurt and comes back."""

    folder: Path | None = None
    """What it keeps outside of the cluster's home."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.stubborn = 0
        """How often it was told to end, did not in time, and was killed."""
        self.turn = asyncio.Lock()
        """One blow at a time."""

    @property
    @abstractmethod
    def pids(self) -> Sequence[int]:
        """The processes that feel a signal."""

    @abstractmethod
    def start(self) -> None:
        """Start it and return when it answers."""

    @abstractmethod
    def end(self, how: signal.Signals) -> None:
        """Send the signal and return when it is gone."""

    async def suffer(self, kind: Kind, seconds: float) -> list[str]:
        """Be hurt and recover; return the processes that wrongly outlived it."""
        async with self.turn:
            if kind is Kind.STOP:
                await self.freeze(seconds)
                return []
            children = [] if kind is Kind.TERMINATE else children_of(self.pids)
            how = signal.SIGKILL if kind is Kind.KILL else signal.SIGTERM
            await asyncio.to_thread(self.end, how)
            left = await asyncio.to_thread(survivors, children)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(self.recover)
            return left

    def recover(self) -> None:
        """Start it again as a supervisor would: it may not stay up while others are down."""
        deadline = time.monotonic() + RECOVER_SECONDS
        while True:
            try:
                self.start()
                return
            except AssertionError:
                self.end(signal.SIGKILL)  # it may only have been slow
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.3)

    async def freeze(self, seconds: float) -> None:
        """Stand still for a while."""
        pids = self.pids
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)


class ProcessMember(Member):
    """A `deerflow` process of its own: a server, or a worker."""

    def __init__(self, process: GatewayProcess | WorkerProcess, target: Target) -> None:
        super().__init__(target)
        self.process = process

    @property
    @override
    def pids(self) -> Sequence[int]:
        return [self.process.pid]

    @override
    def start(self) -> None:
        self.process.start()

    @override
    def end(self, how: signal.Signals) -> None:
        if how is signal.SIGKILL:
            self.process.kill()
            return
        try:
            self.process.stop()
        except subprocess.TimeoutExpired:  # it may wait for a database that is down; supervisors do not
            self.stubborn += 1
            self.process.kill()


class Cluster:
    """Members that answer together at one or more addresses."""

    def __init__(self, home: Path, members: Sequence[Member]) -> None:
        self.home = home
        self.members = {member.target.name: member for member in members}
        self.gateways = {
            member.target.name: member.process.api
            for member in members
            if isinstance(member, ProcessMember) and isinstance(member.process, GatewayProcess)
        }

    @property
    def targets(self) -> list[Target]:
        return [member.target for member in self.members.values()]

    async def start(self) -> None:
        """Start everything: the first alone, since the others may need it."""
        first, *others = self.members.values()
        await asyncio.to_thread(first.start)
        await asyncio.gather(*(asyncio.to_thread(member.recover) for member in others))

    async def stop(self) -> None:
        """End everything as an operator would, the first last."""
        first, *others = self.members.values()
        await asyncio.gather(*(asyncio.to_thread(member.end, signal.SIGTERM) for member in others))
        await asyncio.to_thread(first.end, signal.SIGTERM)

    def kill(self) -> None:
        """End everything at once, and keep nothing."""
        for member in self.members.values():
            member.end(signal.SIGKILL)
            if member.folder is not None:
                shutil.rmtree(member.folder, ignore_errors=True)


def sqlite_cluster(home: Path, model_url: str, sandbox: str) -> Cluster:
    """Return one server that keeps everything in a file."""
    process = GatewayProcess(home, model_url, **{**SETTINGS, "sandbox": sandbox_settings(sandbox)})
    return Cluster(home, [ProcessMember(process, Target("server"))])


def sandbox_settings(tier: str) -> dict[str, Any]:
    return {"use": tier, **({"allow_host_bash": True} if tier == "local" else {})}


def children_of(pids: Sequence[int]) -> list[psutil.Process]:
    """Return everything that these processes started and that lives."""
    found: list[psutil.Process] = []
    for pid in pids:
        try:
            found += psutil.Process(pid).children(recursive=True)
        except psutil.NoSuchProcess:
            continue
    return found


def survivors(children: Sequence[psutil.Process]) -> list[str]:
    """Return the processes that are still there after a while."""
    _, alive = psutil.wait_procs(children, timeout=GONE_SECONDS)
    return [_described(process) for process in alive if _lives(process)]


def leftovers(is_ours: Callable[[psutil.Process], bool]) -> list[str]:
    """Return the processes of a trial that are still there when all of its members have ended."""
    deadline = time.monotonic() + GONE_SECONDS
    while left := [
        process for process in psutil.process_iter() if _lives(process) and _asked(is_ours, process)
    ]:
        if time.monotonic() > deadline:
            return [_described(process) for process in left]
        time.sleep(0.1)
    return []


def belongs_to(home: Path) -> Callable[[psutil.Process], bool]:
    """Return a test for processes that work in `home`, or were started for it."""

    def is_ours(process: psutil.Process) -> bool:
        words = [*process.cmdline(), process.cwd(), process.environ().get("DEER_FLOW_HOME", "")]
        return any(str(home) in word for word in words)

    return is_ours


def _asked(is_ours: Callable[[psutil.Process], bool], process: psutil.Process) -> bool:
    try:
        return process.pid != os.getpid() and is_ours(process)
    except (psutil.Error, OSError):
        return False


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _described(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return str(process.pid)
