"""Who may come in without login: this machine under its own names, and pages that were let in."""

from collections.abc import Mapping

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message

from deerflow.gateway.guard import LocalGuard, host_name, is_loopback

PAGE = "https://app.example.org"


async def answer(
    method: str, headers: Mapping[str, str], *, checks_host: bool = True, origins: tuple[str, ...] = ()
) -> int:
    guard = LocalGuard(PlainTextResponse("in"), checks_host=checks_host, origins=origins)
    transport = httpx.ASGITransport(guard)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:2026") as client:
        return (await client.request(method, "/", headers=dict(headers))).status_code


@pytest.mark.parametrize(
    "host", ["127.0.0.1:2026", "localhost", "LOCALHOST:80", "[::1]:2026", "127.8.9.1:1", "[0:0:0:0:0:0:0:1]"]
)
async def test_own_names_come_in(host: str) -> None:
    assert await answer("POST", {"Host": host}) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example.org",
        "127.0.0.1.evil.org",
        "localhost.evil.org",
        "192.168.0.7:2026",
        "0.0.0.0:2026",
        "[::]:2026",
        "[fe80::1]",
        "[::1",
        "]",
        "127.1",
        "2130706433",
        "localhost.",
        "",
    ],
)
async def test_foreign_names_stay_out_even_to_read(host: str) -> None:
    assert await answer("GET", {"Host": host}) == 403


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example.org", "null", "http://127.0.0.1:3000", "http://[::1", "127.0.0.1:2026", "file://"],
)
async def test_a_foreign_page_may_not_write(origin: str) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert await answer(method, {"Origin": origin, "Content-Type": "text/plain"}) == 403
    assert await answer("GET", {"Origin": origin}) == 200


@pytest.mark.parametrize("origin", ["http://127.0.0.1:2026", "https://127.0.0.1:2026"])
async def test_the_own_page_may_write(origin: str) -> None:
    assert await answer("POST", {"Origin": origin}) == 200


async def test_listed_pages_may_write_and_look_alikes_may_not() -> None:
    for origin in (PAGE, PAGE + "/"):
        assert await answer("POST", {"Origin": origin}, origins=(PAGE,)) == 200
    for origin in (PAGE + ".evil.org", "http://app.example.org", "https://APP.example.org.", PAGE + ":444"):
        assert await answer("POST", {"Origin": origin}, origins=(PAGE,)) == 403


async def test_a_server_for_others_takes_every_host_but_no_foreign_page() -> None:
    assert await answer("POST", {"Host": "deerflow.lan"}, checks_host=False) == 200
    for origin in ("https://evil.example.org", "null"):
        assert await answer("POST", {"Host": "deerflow.lan", "Origin": origin}, checks_host=False) == 403
    assert await answer("POST", {"Host": "", "Origin": "null"}, checks_host=False) == 403


@pytest.mark.parametrize("origin", ["https://evil.example.org", "http://127.0.0.1:2026"])
async def test_a_socket_is_as_good_as_a_write(origin: str) -> None:
    sent: list[Message] = []
    entered: list[str] = []

    async def app(scope: object, receive: object, send: object) -> None:
        entered.append("in")

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    headers = [(b"host", b"127.0.0.1:2026"), (b"origin", origin.encode())]
    scope = {"type": "websocket", "headers": headers, "extensions": {"websocket.http.response": {}}}
    await LocalGuard(app, checks_host=True)(scope, receive, send)  # type: ignore[arg-type]

    assert (entered == ["in"]) is ("127.0.0.1" in origin)
    assert [message.get("status") for message in sent][:1] == ([] if entered else [403])


@pytest.mark.parametrize(("netloc", "name"), [("[::1]:80", "::1"), ("a:1", "a"), ("", ""), ("[", "")])
def test_the_name_is_read_from_the_host(netloc: str, name: str) -> None:
    assert host_name(netloc) == name


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("x", False)],
)
def test_loopback_is_told_from_the_rest(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
