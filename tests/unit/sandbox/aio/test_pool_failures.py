"""What the pool does when a start fails or whoever waits is stopped: no place and no container is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.waiting import until
from typing_extensions import override

from deerflow.config import SandboxSettings
from deerflow.errors import SandboxUnavailableError
from deerflow.sandbox.aio.api import ContainerGoneError
from deerflow.sandbox.aio.backends import ContainerBackend, ContainerSpec
from deerflow.sandbox.aio.pool import ContainerLocks, Pool

NOBODY = "http://127.0.0.1:9"


class Containers(ContainerBackend):
    """Containers that all are one server of this test, which answers while `answers` is set."""

    def __init__(self) -> None:
        self.url = NOBODY
        self.asked = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.starting: asyncio.Event | None = None
        """Holds the first start up, which then fails."""
        self.started: list[str] = []
        self.destroyed: list[str] = []

    @property
    @override
    def refusal(self) -> str | None:
        return None

    @override
    async def discover(self, spec: ContainerSpec) -> str | None:
        return None

    @override
    async def create(self, spec: ContainerSpec) -> str:
        self.started.append(spec.id)
        held, self.starting = self.starting, None
        if held is not None:
            await held.wait()
            raise SandboxUnavailableError("no image")
        return self.url

    @override
    async def destroy(self, container_id: str) -> None:
        self.destroyed.append(container_id)

    @override
    async def running(self) -> list[str]:
        return []


def spec(name: str) -> ContainerSpec:
    return ContainerSpec(name, user_id="ann", thread_id=name, origin="/")


@pytest.fixture
async def containers() -> AsyncIterator[Containers]:
    backend = Containers()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        backend.asked += 1
        await backend.answers.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    backend.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield backend
    backend.answers.set()
    server.close()
    await server.wait_closed()


@asynccontextmanager
async def pool_of(backend: Containers, locks: Path, **settings: Any) -> AsyncIterator[Pool]:
    pool = Pool(backend, ContainerLocks(locks), SandboxSettings().model_copy(update=settings))
    try:
        yield pool
    finally:
        await pool.aclose()


async def test_a_caller_cancelled_while_a_warm_container_is_looked_at_does_not_keep_it(
    containers: Containers, tmp_path: Path
) -> None:
    async with pool_of(containers, tmp_path, health_check_skip_seconds=0) as pool:
        container = await pool.acquire(spec("t1"))
        pool.release(container)
        containers.answers.clear()
        asked = containers.asked
        taking = asyncio.create_task(pool.acquire(spec("t1")))
        await until(lambda: containers.asked > asked)

        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)

        assert (container.users, container.use_lock) == (0, None)
        containers.answers.set()
        assert await pool.acquire(spec("t1")) is container


async def test_a_start_that_fails_lets_the_next_in_line_go_on(containers: Containers, tmp_path: Path) -> None:
    async with pool_of(
        containers, tmp_path, replicas=1, overflow_policy="wait", acquire_timeout=3600
    ) as pool:
        failing = containers.starting = asyncio.Event()
        first = asyncio.create_task(pool.acquire(spec("t1")))
        await until(lambda: containers.started == ["t1"])
        second = asyncio.create_task(pool.acquire(spec("t2")))
        await asyncio.sleep(0)

        failing.set()
        async with asyncio.timeout(120):
            container = await second

        assert container.id == "t2"
        assert isinstance((await asyncio.gather(first, return_exceptions=True))[0], SandboxUnavailableError)


async def test_a_container_that_never_answers_is_stopped_after_a_while(
    containers: Containers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deerflow.sandbox.aio.pool.READY_SECONDS", 0.2)
    containers.url = NOBODY
    async with pool_of(containers, tmp_path, idle_timeout=1) as pool:
        with pytest.raises(ContainerGoneError):
            await pool.acquire(spec("t1"))

        await until(lambda: containers.destroyed == ["t1"])
