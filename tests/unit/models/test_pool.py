"""Models are reached through the proxy that the environment names."""

import asyncio
from collections.abc import AsyncIterator
from importlib.util import find_spec

import pytest
from support.model_server import ScriptedModel, text

from deerflow.config import ModelSettings
from deerflow.errors import ConfigError
from deerflow.models import ModelFactory
from deerflow.models.pool import proxy_for

OPENAI = "https://api.openai.com/v1"


@pytest.mark.parametrize(
    ("env", "url", "expected"),
    [
        ({}, OPENAI, None),
        ({"HTTPS_PROXY": "http://p:1"}, OPENAI, "http://p:1"),
        ({"https_proxy": "p:1"}, OPENAI, "http://p:1"),
        ({"HTTP_PROXY": "http://p:1"}, OPENAI, None),
        ({"HTTP_PROXY": "http://p:1"}, "http://vllm:8000/v1", "http://p:1"),
        ({"ALL_PROXY": "socks5://p:1"}, OPENAI, "socks5://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "openai.com"}, OPENAI, None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".openai.com"}, OPENAI, None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, OPENAI, None),
        ({"HTTPS_PROXY": "http://p:1", "no_proxy": "notopenai.com, x"}, OPENAI, "http://p:1"),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "http://10.1.2.3:80/v1", None),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "localhost:8000"}, "http://localhost:8000/v1", None),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "localhost:8000"}, "http://localhost:9/v1", "http://p:1"),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "::1"}, "http://[::1]:9/v1", None),
    ],
)
def test_the_usual_variables_count(env: dict[str, str], url: str, expected: str | None) -> None:
    assert proxy_for(url, env) == expected


class Proxy:
    """A forward proxy that notes what it was asked for."""

    def __init__(self) -> None:
        self.targets: list[str] = []
        self.authorizations: list[str] = []
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split("\r\n", 1)[0].split(" ")
        self.targets.append(f"{method} {target}")
        self.authorizations += [h for h in head.split("\r\n") if h.lower().startswith("proxy-authorization")]
        host, _, rest = target.removeprefix("http://").partition("/")
        upstream_reader, upstream = await asyncio.open_connection(*host.split(":"))
        lines = [line for line in head.split("\r\n")[1:] if line and not line.lower().startswith("proxy-")]
        upstream.write("\r\n".join([f"{method} /{rest} HTTP/1.1", *lines, "", ""]).encode())
        back = asyncio.create_task(pump(upstream_reader, writer))
        await pump(reader, upstream)
        await back


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    proxy = Proxy()
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.url = f"http://deer:flow@127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield proxy
    server.close()
    await server.wait_closed()


def entry(model: ScriptedModel, **more: object) -> ModelSettings:
    given = {"name": "m", "use": "langchain_openai:ChatOpenAI", "model": "m", "base_url": model.base_url}
    return ModelSettings.model_validate({**given, **more})


async def test_calls_go_through_the_proxy_of_the_environment(model: ScriptedModel, proxy: Proxy) -> None:
    model.will_say(text("through"))
    factory = ModelFactory([entry(model)], env={"http_proxy": proxy.url})

    answer = await factory.create().ainvoke("hi")
    await factory.aclose()

    assert answer.text == "through"
    assert proxy.targets == [f"POST {model.base_url}/chat/completions"]
    assert len(proxy.authorizations) == 1


async def test_no_proxy_is_respected(model: ScriptedModel, proxy: Proxy) -> None:
    model.will_say(text("straight"))
    factory = ModelFactory([entry(model)], env={"http_proxy": proxy.url, "no_proxy": "127.0.0.0/8"})

    await factory.create().ainvoke("hi")
    await factory.aclose()

    assert proxy.targets == []


async def test_https_is_tunnelled(proxy: Proxy) -> None:
    secure = entry(ScriptedModel(port=9), base_url="https://127.0.0.1:9/v1", max_retries=0)
    factory = ModelFactory([secure], env={"HTTPS_PROXY": proxy.url})

    with pytest.raises(Exception, match="Connection error"):
        await factory.create().ainvoke("hi")
    await factory.aclose()

    assert proxy.targets == ["CONNECT 127.0.0.1:9"]


@pytest.mark.skipif(find_spec("socksio") is not None, reason="the package for SOCKS is installed")
def test_a_socks_proxy_says_what_it_needs(model: ScriptedModel) -> None:
    factory = ModelFactory([entry(model)], env={"ALL_PROXY": "socks5://127.0.0.1:9"})

    with pytest.raises(ConfigError, match=r"models\[m\]: a SOCKS proxy .* pip install .*socksio"):
        factory.create()


@pytest.mark.parametrize("transport", ["lean", "sdk"])
async def test_synchronous_calls_and_the_sdk_use_the_proxy_too(
    model: ScriptedModel, proxy: Proxy, transport: str
) -> None:
    model.will_say(text("through"), text("too"))
    factory = ModelFactory([entry(model, transport=transport)], env={"http_proxy": proxy.url})
    chat = factory.create()

    await asyncio.to_thread(chat.invoke, "hi")
    await chat.ainvoke("hi")
    await factory.aclose()

    assert proxy.targets == [f"POST {model.base_url}/chat/completions"] * 2
