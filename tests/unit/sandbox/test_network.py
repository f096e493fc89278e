"""The proxy out of a sandbox: what it lets through and what it refuses."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deerflow.config import SandboxSettings
from deerflow.config.sandbox import NetworkSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import ConfigError
from deerflow.sandbox.isolated import IsolatedSandboxProvider
from deerflow.sandbox.network import EgressError, NetworkPolicy, Proxy, parse_connect, parse_rule


async def web_server() -> tuple[asyncio.Server, int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


@asynccontextmanager
async def proxy(policy: NetworkPolicy, *answers: Sequence[str]) -> AsyncIterator[int]:
    left = list(answers)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return left.pop(0) if left else ["127.0.0.1"]

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    async with Proxy(policy, "t1", resolve=resolve).serving(listener):
        yield port


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return answer


def policy(*allow: str, cidrs: Sequence[str] = ()) -> NetworkPolicy:
    return NetworkPolicy.from_settings(NetworkSettings(allow=allow, allow_cidrs=tuple(cidrs)))


async def test_an_allowed_host_is_reached_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    server, port = await web_server()
    caplog.set_level(logging.INFO)

    async with proxy(policy(f"good.test:{port}", cidrs=["127.0.0.0/8"])) as door:
        answer = await ask(
            door,
            f"CONNECT good.test:{port} HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: good.test\r\n\r\n".encode(),
        )

    assert answer.startswith(b"HTTP/1.1 200 Connection established")
    assert answer.endswith(b"hello")
    assert f"connected to good.test:{port} (127.0.0.1)" in caplog.text
    server.close()


@pytest.mark.parametrize(
    "line",
    [
        "CONNECT evil.test:443 HTTP/1.1",
        "CONNECT good.test:22 HTTP/1.1",
        "CONNECT good.test.evil.test:443 HTTP/1.1",
        "CONNECT 127.0.0.1:443 HTTP/1.1",
        "CONNECT 169.254.169.254:80 HTTP/1.1",
        "CONNECT 2852039166:80 HTTP/1.1",
        "CONNECT 0xa9fea9fe:80 HTTP/1.1",
        "CONNECT [::1]:443 HTTP/1.1",
        "CONNECT [::ffff:169.254.169.254]:80 HTTP/1.1",
        "CONNECT good.test@evil.test:443 HTTP/1.1",
        "CONNECT good.test:443:1 HTTP/1.1",
        "CONNECT good.test:99999999 HTTP/1.1",
        "GET http://good.test/ HTTP/1.1",
        "POST / HTTP/1.1",
        "\x16\x03\x01",
    ],
)
async def test_everything_else_is_refused(line: str) -> None:
    async with proxy(policy("good.test")) as door:
        answer = await ask(door, f"{line}\r\n\r\n".encode("latin-1"))

    assert answer.split(b" ")[1] in (b"400", b"403", b"405")


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1"),
        *("::1", "fe80::1", "fd00:ec2::254", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "::7f00:1"),
    ],
)
async def test_an_allowed_name_with_a_private_address_is_refused(address: str) -> None:
    async with proxy(policy("good.test"), [address]) as door:
        answer = await ask(door, b"CONNECT good.test:443 HTTP/1.1\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 403")


async def test_one_private_address_among_public_ones_is_enough_to_refuse() -> None:
    async with proxy(policy("good.test"), ["93.184.215.14", "10.0.0.1"]) as door:
        answer = await ask(door, b"CONNECT good.test:443 HTTP/1.1\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 403")


async def test_the_checked_address_is_the_one_connected_to() -> None:
    server, port = await web_server()

    async with proxy(
        policy(f"good.test:{port}", cidrs=["127.0.0.1/32"]), ["127.0.0.1"], ["10.255.255.1"]
    ) as door:
        answer = await ask(door, f"CONNECT good.test:{port} HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n".encode())

    assert answer.endswith(b"hello")  # a second look-up would have led elsewhere
    server.close()


async def test_an_endless_head_is_refused() -> None:
    async with proxy(policy("good.test")) as door:
        answer = await ask(door, b"CONNECT good.test:443 HTTP/1.1\r\n" + b"X: y\r\n" * 10_000)

    assert answer.startswith(b"HTTP/1.1 502")


@pytest.mark.parametrize(
    "text", ["*", "*.", "", "http://x", "a b", "host:0", "host:x", "host:70000", "[::1]"]
)
def test_a_rule_that_means_nothing_is_an_error_at_start(text: str) -> None:
    with pytest.raises(ConfigError, match=r"sandbox\.network\.allow"):
        parse_rule(text)


def test_rules_with_a_star_fit_names_below_only() -> None:
    rules = policy("*.example.org")

    rules.check_host("a.b.example.org", 443)
    for host in ("example.org", "badexample.org", "example.org.evil.test"):
        with pytest.raises(EgressError):
            rules.check_host(host, 443)


def test_a_wrong_range_is_an_error_at_start() -> None:
    with pytest.raises(ConfigError, match="allow_cidrs"):
        policy("a.test", cidrs=["10.0.0.300/8"])


def test_a_trailing_dot_and_capitals_mean_the_same_host() -> None:
    assert parse_connect(b"CONNECT Good.TEST.:443 HTTP/1.1\r\n\r\n") == ("good.test", 443)


def fetch(port: int, *, through: str = "3128") -> str:
    """Return shell words that ask for a page through the proxy, without any program but bash."""
    request = "GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"
    connect = f"CONNECT localhost:{port} HTTP/1.1\\r\\n\\r\\n" if through == "3128" else ""
    return f"(exec 3<>/dev/tcp/127.0.0.1/{through} && printf '{connect}{request}' >&3 && cat <&3) 2>&1; echo;"


async def test_a_command_reaches_only_what_is_allowed(
    reachable: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server, port = await web_server()
    other, closed = await web_server()
    caplog.set_level(logging.INFO)
    network = NetworkSettings(allow=(f"localhost:{port}",), allow_cidrs=("127.0.0.0/8", "::1/128"))
    provider = IsolatedSandboxProvider(SandboxSettings(network=network))

    async with provider.acquire(ThreadFolders("t1", reachable / "users" / "u" / "threads" / "t1")) as sandbox:
        allowed = await sandbox.execute_command(fetch(port), timeout=60)
        forbidden = await sandbox.execute_command(fetch(closed), timeout=60)
        direct = await sandbox.execute_command(fetch(port, through=str(port)), timeout=60)
        named = await sandbox.execute_command('echo "$https_proxy $HTTPS_PROXY"', timeout=60)

    assert allowed.output.endswith("hello\n")
    assert "403 Forbidden" in forbidden.output
    assert "Connection refused" in direct.output
    assert named.output == "http://127.0.0.1:3128 http://127.0.0.1:3128\n"
    assert f"sandbox t1: connected to localhost:{port}" in caplog.text
    assert f"localhost:{closed} is not in" in caplog.text
    await provider.aclose()
    server.close()
    other.close()
