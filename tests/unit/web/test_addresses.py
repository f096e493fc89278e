"""Pages are fetched from public addresses only, whatever the URL looks like and wherever it leads."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.dns_server import dns_server, resolver
from support.sandboxes import run_context
from support.tool_calls import answer_of

from deerflow.config import Settings, ToolSettings, WebSettings
from deerflow.errors import ConfigError, WebError
from deerflow.tools.web import web_fetch_tool
from deerflow.web.fetch import PageFetcher
from deerflow.web.policy import AddressPolicy
from deerflow.web.service import WebService

REFUSED = "private or reserved address"
FETCH = web_fetch_tool(ToolSettings(name="web_fetch"))


@asynccontextmanager
async def server(
    answer: Callable[[web.Request], web.StreamResponse], host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[tuple[int, list[str]]]:
    """Yield the port of a server and the paths that it was asked for."""
    asked: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return answer(request)

    app = web.Application()
    app.router.add_route("GET", "/{tail:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    try:
        yield runner.addresses[0][1], asked
    finally:
        await runner.cleanup()


def page(text: str) -> Callable[[web.Request], web.StreamResponse]:
    html = f"<html><body><main><p>{text}</p></main></body></html>"
    return lambda request: web.Response(text=html, content_type="text/html")


def fetcher(resolve: Any = None, **settings: Any) -> PageFetcher:
    own = WebSettings.model_validate({"respect_robots": False, "timeout_seconds": 5, **settings})
    options = {"resolve": resolve} if resolve else {}
    return PageFetcher(own, AddressPolicy.from_settings(own, **options))


@pytest.mark.parametrize(
    "host",
    [
        *(
            "169.254.169.254",
            "2852039166",
            "0xA9FEA9FE",
            "169.254.43518",
            "0xa9.0xfe.43518",
        ),
        *("[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::1]"),
        *("[fd00:ec2::254]", "[fe80::1]", "[::1]", "[::]", "[2001::1]", "[100::1]", "[ff02::1]"),
        *(
            "localhost",
            "localhost.",
            "LOCALHOST",
            "0",
            "0.0.0.0",
            "127.1",
            "127.0.0.1:80",
            "2130706433",
            "017700000001",
        ),
        *(
            "0251.0376.1",
            "127。0。0。1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "224.0.0.1",
        ),
        *("0251.0376.1", "127。0。0。1", "255.255.255.255", "168.63.129.16", "192.0.0.1", "240.0.0.1"),
    ],
)
async def test_no_form_of_a_private_address_is_fetched(host: str, tmp_path: Path) -> None:
    service = WebService()
    async with service.session() as session:
        answer = await answer_of(
            FETCH, run_context(tmp_path, web=session), url=f"http://{host}/latest/meta-data/"
        )
    await service.aclose()

    assert answer.status == "error"
    assert REFUSED in answer.text
    assert "see web.allow_cidrs and web.allow_private_hosts" in answer.text


@pytest.mark.parametrize(
    "url",
    [
        *(
            "file:///etc/passwd",
            "ftp://127.0.0.1/x",
            "gopher://127.0.0.1:70/",
            "data:text/html,<p>x",
            "unix:/run/x",
        ),
        *(
            "jar:http://127.0.0.1!/",
            "javascript:alert(1)",
            "//127.0.0.1/",
            "127.0.0.1",
            "http://",
            "http:///x",
        ),
        "http://0251.0376.0251.0376/",
        *("http://user:pass@example.org/", "http://user@example.org/", "https://:p@example.org/"),
        *(
            "http://ｌｏｃａｌｈｏｓｔ/",
            "http://①②⑦.0.0.1/",
            "http://[::1",
            "http://a:99999/",
        ),
        *(
            "http://exa mple.org/",
            "http://a\\@127.0.0.1/",
            "http://" + "a" * 300 + ".org/",
            "http://x/" + "a" * 5000,
        ),
    ],
)
async def test_what_is_no_plain_web_address_is_refused(url: str) -> None:
    async def nothing(host: str, port: int) -> list[str]:
        raise AssertionError(f"{host} is looked up")

    with pytest.raises(WebError):
        await fetcher(nothing).fetch(url)


async def test_a_name_is_resolved_once_and_the_connection_goes_there() -> None:
    """The name resolves to an allowed address first and to this machine's own after that (DNS rebinding)."""
    async with (
        dns_server(["127.0.0.2"], ["127.0.0.1"]) as names,
        server(page("public words"), "127.0.0.2") as (port, public),
        server(page("secret words"), "127.0.0.1", port) as (_, secret),
    ):
        rebinding = fetcher(resolver(names), allow_cidrs=["127.0.0.2/32"])
        first = await rebinding.fetch(f"http://rebind.example:{port}/a")
        with pytest.raises(WebError, match=r"127\.0\.0\.1 is a private or reserved address"):
            await rebinding.fetch(f"http://rebind.example:{port}/b")

    assert b"public words" in first.content
    assert names.asked == ["rebind.example"] * 2
    assert (public, secret) == (["/a"], [])


async def test_a_name_with_one_private_address_among_others_is_refused() -> None:
    async with dns_server(["127.0.0.2", "10.0.0.1"]) as names:
        with pytest.raises(WebError, match=r"10\.0\.0\.1 is a private"):
            await fetcher(resolver(names), allow_cidrs=["127.0.0.2/32"]).fetch("http://mixed.example/")


async def test_a_redirect_is_resolved_and_checked_again() -> None:
    async with dns_server(["127.0.0.2"], ["127.0.0.1"]) as names:

        def redirect(request: web.Request) -> web.StreamResponse:
            return web.Response(
                status=302, headers={"Location": f"http://other.example:{request.url.port}/in"}
            )

        async with (
            server(redirect, "127.0.0.2") as (port, public),
            server(page("secret words"), "127.0.0.1", port) as (_, secret),
        ):
            own = fetcher(resolver(names), allow_cidrs=["127.0.0.2/32"])
            with pytest.raises(WebError, match=r"other\.example.* 127\.0\.0\.1 is a private"):
                await own.fetch(f"http://start.example:{port}/")

    assert (public, secret, names.asked) == (["/"], [], ["start.example", "other.example"])


async def test_cookies_stay_with_their_host() -> None:
    seen = []

    def answer(request: web.Request) -> web.StreamResponse:
        seen.append((request.host, request.headers.get("Cookie"), request.headers.get("Authorization")))
        if request.path == "/end":
            return web.Response(text="<p>end</p>", content_type="text/html")
        port = request.url.port
        target = f"http://b.example:{port}/end" if request.path == "/two" else f"http://a.example:{port}/two"
        return web.Response(status=302, headers={"Location": target, "Set-Cookie": "token=secret; Path=/"})

    async with dns_server(["127.0.0.1"]) as names, server(answer) as (port, _):
        await fetcher(resolver(names), allow_cidrs=["127.0.0.1/32"]).fetch(f"http://a.example:{port}/one")

    assert [(host.partition(":")[0], cookie) for host, cookie, _ in seen] == [
        ("a.example", None),
        ("a.example", "token=secret"),
        ("b.example", None),
    ]


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "ALL_PROXY"])
async def test_a_proxy_of_the_environment_does_not_replace_the_check(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(page("from the proxy")) as (port, asked):
        monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        with pytest.raises(WebError, match=REFUSED):
            await fetcher().fetch("http://10.0.0.1/")

    assert asked == []


@pytest.mark.parametrize(
    ("allowed", "host", "is_fetched"),
    [
        ({"allow_private_hosts": ["127.0.0.1:{port}"]}, "127.0.0.1", True),
        ({"allow_private_hosts": ["127.0.0.1"]}, "127.0.0.1", True),
        ({"allow_private_hosts": ["wiki.example"]}, "wiki.example", True),
        ({"allow_private_hosts": ["*.corp.example"]}, "a.corp.example", True),
        ({"allow_cidrs": ["127.0.0.0/8"]}, "127.0.0.1", True),
        ({"allow_private_hosts": ["127.0.0.1:1"]}, "127.0.0.1", False),
        ({"allow_private_hosts": ["wiki.example"]}, "evil-wiki.example", False),
        ({"allow_private_hosts": ["*.corp.example"]}, "corp.example", False),
        ({"allow_private_hosts": ["*.corp.example"]}, "evilcorp.example", False),
        ({"allow_cidrs": ["10.0.0.0/8"]}, "127.0.0.1", False),
    ],
)
async def test_the_operator_allows_private_hosts_by_name(
    allowed: dict[str, list[str]], host: str, is_fetched: bool
) -> None:
    async with dns_server(["127.0.0.1"]) as names, server(page("inside")) as (port, asked):
        named = {key: [text.format(port=port) for text in texts] for key, texts in allowed.items()}
        own = fetcher(None if host == "127.0.0.1" else resolver(names), **named)
        with suppress(WebError):
            await own.fetch(f"http://{host}:{port}/")

    assert (asked == ["/"]) is is_fetched


@pytest.mark.parametrize("host", ["*", "a b", "http://x", "", "x:y"])
def test_an_entry_that_is_no_host_is_said(host: str) -> None:
    with pytest.raises(ConfigError, match=r"web\.allow_private_hosts"):
        AddressPolicy.from_settings(Settings.model_validate({"web": {"allow_private_hosts": [host]}}).web)


RAW = {
    "slow header": ([b"HTTP/1.1 200 OK\r\n", *[b"X-A: b\r\n"] * 400], "took longer than 1 seconds"),
    "nested compression": (
        [
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\n\r\n"
            + gzip.compress(gzip.compress(b"x" * 10**6))
        ],
        "is compressed with 'gzip, gzip', which was not asked for",
    ),
    "huge length": (
        [b"HTTP/1.1 200 OK\r\nContent-Length: 10737418240\r\nContent-Type: text/html\r\n\r\n<p>"],
        "has more than 10485760 bytes",
    ),
    "short body": ([b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n<p>x"], "cannot be fetched"),
    "no HTTP": ([b"SSH-2.0-OpenSSH_9.9\r\n"], "cannot be fetched"),
    "huge header": ([b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 10**6 + b"\r\n\r\n"], "cannot be fetched"),
}


@pytest.mark.parametrize("name", RAW)
async def test_servers_that_misbehave_cost_a_bounded_time(name: str) -> None:
    pieces, said = RAW[name]
    handling = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handling.append(asyncio.current_task())
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.01 if len(pieces) > 1 else 0)
            writer.write_eof()
            await reader.read()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with listener, asyncio.timeout(30):
        seconds = 1 if name == "slow header" else 20
        own = fetcher(allow_cidrs=["127.0.0.1/32"], timeout_seconds=seconds)
        with pytest.raises(WebError, match=said):
            await own.fetch(f"http://127.0.0.1:{port}/")
        await asyncio.gather(*handling)
