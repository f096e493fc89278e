"""Why a connection failed is told in plain words, whichever library noticed it."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
from support.raw_server import raw_server

from deerflow.config import ModelSettings
from deerflow.connection_errors import connection_reason, without_objects
from deerflow.models import ModelFactory
from deerflow.models.explain import explain

CHUNKED = "text/plain\r\ntransfer-encoding: chunked"
CLOSED = "http://127.0.0.1:9"
REFUSED = "the connection was refused"
USES: dict[str, dict[str, Any]] = {
    "langchain_openai:ChatOpenAI": {"api_key": "k", "max_retries": 0},
    "langchain_anthropic:ChatAnthropic": {"api_key": "k", "max_retries": 0},
    "langchain_google_genai:ChatGoogleGenerativeAI": {"api_key": "k", "max_retries": 1},
    "langchain_ollama:ChatOllama": {},
}


async def by_aiohttp(url: str) -> None:
    async with aiohttp.ClientSession() as http, http.get(url, ssl=ssl.create_default_context()) as answer:
        await answer.read()


async def by_httpx(url: str) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        await http.get(url)


async def by_httpx2(url: str) -> None:
    async with httpx2.AsyncClient(trust_env=False) as http:
        await http.get(url)


Ask = Callable[[str], Awaitable[None]]
LIBRARIES = pytest.mark.parametrize("ask", [by_aiohttp, by_httpx, by_httpx2])


@LIBRARIES
@pytest.mark.parametrize("url", [CLOSED, "http://localhost:9", "https://127.0.0.1:9"])
async def test_a_refused_connection(ask: Ask, url: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 each library has its own
        await ask(url)

    assert connection_reason(caught.value) == REFUSED


@LIBRARIES
async def test_a_server_without_tls(ask: Ask) -> None:
    is_over = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with suppress(OSError):
            await reader.read()
            writer.close()
            await writer.wait_closed()
        is_over.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        await ask(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    await is_over.wait()
    server.close()
    await server.wait_closed()

    assert connection_reason(caught.value).startswith("no secure connection could be made (")


@LIBRARIES
async def test_a_name_that_nobody_knows(ask: Ask) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        await ask("http://nobody.invalid/")

    assert connection_reason(caught.value) == "the name of the host cannot be resolved"


async def test_an_answer_that_breaks_off() -> None:
    async with raw_server(b"5\r\nab", kind=CHUNKED) as address:
        with pytest.raises(aiohttp.ClientPayloadError) as caught:
            await by_aiohttp(address)

    assert connection_reason(caught.value) == "the answer broke off"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Cannot connect to a:443 ssl:<ssl.SSLContext object at 0x7f00> [no]",
            "Cannot connect to a:443 [no]",
        ),
        ("Cannot connect to a:443 ssl:default [no]", "Cannot connect to a:443 [no]"),
        ("got <function f at 0x7f00> here", "got here"),
        ("a < b and c > d", "a < b and c > d"),
        ("<b>words</b>\nline", "<b>words</b>\nline"),
    ],
)
def test_objects_in_memory_are_not_shown(text: str, expected: str) -> None:
    assert without_objects(text) == expected


def test_a_certificate_that_is_not_trusted() -> None:
    behind = ssl.SSLCertVerificationError(1, "certificate verify failed")
    behind.verify_message = "self-signed certificate"
    error = aiohttp.ClientConnectionError("Cannot connect")
    error.__cause__ = behind

    assert connection_reason(error) == "its certificate is not trusted (self-signed certificate)"


def test_an_unknown_failure_keeps_its_words() -> None:
    assert connection_reason(ValueError("a\n b")) == "a b"
    assert connection_reason(ValueError()) == "ValueError"


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
@pytest.mark.parametrize("use", USES)
async def test_a_model_that_cannot_be_reached_says_why(use: str) -> None:
    given = {"name": "m", "model": "m", "use": use, "base_url": CLOSED, **USES[use]}
    factory = ModelFactory([ModelSettings.model_validate(given)], env={})

    with pytest.raises(Exception) as caught:  # noqa: PT011
        await factory.create().ainvoke("hi")
    await factory.aclose()

    told = explain(caught.value)
    assert told is not None
    assert REFUSED in str(told)
    assert REFUSED in told.in_chinese
    assert "object at" not in str(told)
    assert "ssl:" not in str(told)
