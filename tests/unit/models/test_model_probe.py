"""Whether a model's server can be reached is told without asking the model."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from support.model_server import ScriptedModel

from deerflow.config import ModelSettings
from deerflow.models import ModelFactory
from deerflow.models.compatible import connection_problem
from deerflow.models.discovery import OFFLINE

Server = Callable[[int | None], Awaitable[str]]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """Return a way to start a server that answers everything with one status, or never."""
    running: list[asyncio.Server] = []

    async def start(status: int | None) -> str:
        async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            if status is None:
                await reader.read()
            else:
                head = f"HTTP/1.1 {status} X\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
                writer.write(head.encode())
            writer.close()

        running.append(await asyncio.start_server(reply, "127.0.0.1", 0))
        return f"http://127.0.0.1:{running[-1].sockets[0].getsockname()[1]}/v1"

    yield start
    for one in running:
        one.close()


def entry(base_url: str, name: str = "m", **more: object) -> ModelSettings:
    given = {"use": "langchain_openai:ChatOpenAI", "model": "m", "api_key": "k", "base_url": base_url}
    return ModelSettings.model_validate({"name": name, **given, **more})


async def problem(*entries: ModelSettings, timeout_seconds: float = 30) -> str | None:
    factory = ModelFactory(entries, env={})
    try:
        return await connection_problem(factory.create(), timeout_seconds=timeout_seconds)
    finally:
        await factory.aclose()


async def test_a_server_that_lists_its_models_is_fine_and_no_model_was_asked(model: ScriptedModel) -> None:
    assert await problem(entry(model.base_url)) is None
    assert model.requests == []


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_told(server: Server, status: int) -> None:
    assert "refuses the key; check `api_key`" in str(await problem(entry(await server(status))))


@pytest.mark.parametrize("status", [404, 405, 429, 500])
async def test_a_server_without_a_list_is_there_all_the_same(server: Server, status: int) -> None:
    assert await problem(entry(await server(status))) is None


async def test_a_silent_server_is_not_waited_for_long(server: Server) -> None:
    said = await problem(entry(await server(None)), timeout_seconds=0.2)

    assert "did not answer within 0.2 s" in str(said)


async def test_of_a_model_with_fallbacks_the_first_is_looked_at(model: ScriptedModel) -> None:
    gone = entry("http://127.0.0.1:9/v1", "gone", fallbacks=["m"])

    assert "127.0.0.1:9/v1 cannot be reached" in str(await problem(gone, entry(model.base_url)))


async def test_a_model_without_a_server_has_nothing_to_reach() -> None:
    assert await problem(OFFLINE) is None
