"""A cluster of gateways and workers around one PostgreSQL, all on this machine."""

import asyncio
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chaos.cluster import SETTINGS, Cluster, Member, ProcessMember, sandbox_settings
from chaos.plan import Kind, Target
from support.gateway import GatewayProcess, WorkerProcess
from support.postgres import PostgresServer
from typing_extensions import override

LEASE_SECONDS = 3
GATEWAYS = 2
WORKERS = 3


class DatabaseMember(Member):
    """The PostgreSQL server with all of its processes."""

    def __init__(self, name: str) -> None:
        super().__init__(Target(name, kinds=(Kind.KILL, Kind.STOP), longest_stop=1.5 * LEASE_SECONDS))
        # Not in pytest's folders: every test run shuts those to other users, and the server is one.
        self.folder = Path(tempfile.mkdtemp(prefix="chaos-pg-"))
        self._is_made = False
        self.server = PostgresServer(self.folder)

    @property
    @override
    def pids(self) -> Sequence[int]:
        return ()  # the server knows its processes itself

    @override
    def start(self) -> None:
        if self._is_made:
            self.server.restart()
        else:
            self.server = PostgresServer.start(self.folder)
            self._is_made = True

    @override
    def end(self, how: signal.Signals) -> None:
        if how is signal.SIGKILL:
            self.server.kill()
        else:
            self.server.stop()

    @override
    async def freeze(self, seconds: float) -> None:
        await asyncio.to_thread(self.server.pause)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.server.resume()


def postgres_cluster(home: Path, model_url: str, sandbox: str) -> Cluster:
    """Return gateways that execute nothing, and workers, around a database of their own."""
    database = DatabaseMember("database")
    settings: dict[str, Any] = {
        **SETTINGS,
        "sandbox": sandbox_settings(sandbox),
        "database": {"backend": "postgres", "postgres_url": database.server.url, "pool_size": 3},
        "run_ownership": {"lease_seconds": LEASE_SECONDS, "grace_seconds": 1},
    }
    members: list[Member] = [database]
    for number in range(1, GATEWAYS + 1):
        gateway = GatewayProcess(home, model_url, concurrency=0, **settings)
        members.append(ProcessMember(gateway, Target(f"gateway{number}", longest_stop=LEASE_SECONDS)))
    for number in range(1, WORKERS + 1):
        worker = WorkerProcess(home, model_url, concurrency=4, **settings)
        # Stopped for longer than its lease now and then: it wakes up as a zombie.
        target = Target(f"worker{number}", weight=3, longest_stop=2 * LEASE_SECONDS)
        members.append(ProcessMember(worker, target))
    return Cluster(home, members)
