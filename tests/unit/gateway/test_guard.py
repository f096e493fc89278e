"""Who may come in without login: this machine under its own names, and pages that were let in."""

import ipaddress
from collections.abc import Mapping, Sequence

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message

from deerflow.gateway.guard import Address, LocalGuard, is_loopback, parse_address

PAGE = "https://app.example.org"


async def answer(
    method: str,
    headers: Mapping[str, str] | Sequence[tuple[str, str]],
    *,
    checks_host: bool = True,
    origins: tuple[str, ...] = (),
    trusted: str | None = None,
    path: str = "/",
) -> int:
    guard = LocalGuard(
        PlainTextResponse("in"),
        checks_host=checks_host,
        origins=origins,
        trusted_proxies=(ipaddress.ip_network(trusted),) if trusted else (),
    )
    transport = httpx.ASGITransport(guard, client=("127.0.0.1", 4711))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:2026") as client:
        return (await client.request(method, path, headers=httpx.Headers(headers))).status_code


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


@pytest.mark.parametrize("name", ["cancel_on_disconnect", "cancel%5Fon_disconnect"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "http://127.0.0.1:2026", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": PAGE, "Sec-Fetch-Site": "cross-site"}, 200),
        ({"Origin": "https://evil.example.org"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
async def test_a_foreign_page_may_not_stop_a_run_by_leaving_its_stream(
    name: str, headers: dict[str, str], status: int
) -> None:
    path = f"/api/threads/t/runs/r/stream?a=1&{name}=true"

    assert await answer("GET", headers, origins=(PAGE,), path=path) == status


@pytest.mark.parametrize(
    "origin",
    [
        "http://127.0.0.1:2026",
        "https://127.0.0.1:2026",
        "http://localhost:2026",
        "http://[::1]:2026",
        "HTTP://LOCALHOST:2026",
    ],
)
async def test_the_own_page_may_write_under_every_name_of_this_machine(origin: str) -> None:
    assert await answer("POST", {"Origin": origin}) == 200


@pytest.mark.parametrize(
    ("origin", "forwarded"),
    [
        ("http://localhost:3000", "localhost:3000"),
        ("http://127.0.0.1:3000", "localhost:3000"),
        ("http://localhost:3000", "[::1]:3000"),
        ("http://LocalHost:3000", "LOCALHOST:3000"),
        ("https://localhost", "localhost:443"),
        ("http://localhost:80", "localhost"),
    ],
)
async def test_a_page_behind_a_proxy_on_this_machine_may_write(origin: str, forwarded: str) -> None:
    headers = {"Origin": origin, "X-Forwarded-Host": forwarded}

    assert await answer("POST", headers) == 200
    assert await answer("POST", {**headers, "Host": "gateway:8001"}, checks_host=False) == 200
    assert await answer("POST", {"Origin": origin}) == 403


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://localhost:8888",
        "http://localhost",
        "https://evil.example.org",
        "https://evil.example.org:3000",
        "http://localhost.evil.org:3000",
        "http://evil.localhost:3000",
        "http://localhost.:3000",
        "http://localhost:3000.evil.org",
        "http://localhost:3000@evil.org",
        "http://evil@localhost:3000",
        "http://localhost:3000/x",
        "http://localhost:3000?x",
        "http://localhost:3000 http://evil.org",
        "http://localhost:3000,http://evil.org",
        "http://127.0.0.1.evil.org:3000",
        "http://127.1:3000",
        "http://[::1:3000",
        "http://[::ffff:8.8.8.8]:3000",
        "http://localhost:03000000",
        "file://localhost:3000",
        "localhost:3000",
        "//localhost:3000",
    ],
)
async def test_a_foreign_page_may_not_write_through_the_proxy(origin: str) -> None:
    for method in ("POST", "DELETE"):
        assert await answer(method, {"Origin": origin, "X-Forwarded-Host": "localhost:3000"}) == 403
        headers = {"Host": "gateway:8001", "Origin": origin, "X-Forwarded-Host": "localhost:3000"}
        assert await answer(method, headers, checks_host=False) == 403


@pytest.mark.parametrize(
    "forwarded",
    ["evil.example.org:3000", "localhost:3000, evil.example.org", "localhost.", "evil@localhost", "[", "*"],
)
async def test_a_foreign_name_at_the_proxy_stays_out_even_to_read(forwarded: str) -> None:
    for headers in ({}, {"Origin": "http://localhost:3000"}, {"Origin": "http://evil.example.org:3000"}):
        assert await answer("GET", {**headers, "X-Forwarded-Host": forwarded}) == 403
        assert await answer("POST", {**headers, "X-Forwarded-Host": forwarded}) == 403


async def test_a_name_that_is_rebound_to_this_machine_stays_out_whatever_its_page_sends() -> None:
    # Such a page is of one origin with the server that it calls: it may set any header but these two.
    rebound = {"Host": "evil.example.org:2026", "Origin": "http://evil.example.org:2026"}
    for forwarded in ("localhost:2026", "evil.example.org:2026", "127.0.0.1:2026"):
        for trusted in (None, "127.0.0.1/32"):
            headers = {**rebound, "X-Forwarded-Host": forwarded}
            assert await answer("GET", headers, trusted=trusted) == 403
            assert await answer("POST", headers, trusted=trusted) == 403


async def test_headers_that_come_twice_grant_nothing() -> None:
    own, page = ("Origin", "http://localhost:3000"), ("X-Forwarded-Host", "localhost:3000")

    assert await answer("POST", [own, page]) == 200
    assert await answer("POST", [own, own, page]) == 403
    assert await answer("POST", [own, ("Origin", "https://evil.example.org"), page]) == 403
    assert await answer("POST", [own, page, ("X-Forwarded-Host", "localhost:4000")]) == 403
    assert await answer("GET", [("Host", "127.0.0.1:2026"), ("Host", "localhost:2026")]) == 403


async def test_the_port_is_enough_for_a_proxy_that_forwards_no_name() -> None:
    # Node's http-proxy sends no X-Forwarded-Host with a WebSocket; the last port of a list is its own.
    origin = {"Origin": "http://localhost:3000"}

    assert await answer("POST", {**origin, "X-Forwarded-Port": "3000"}) == 200
    assert await answer("POST", {**origin, "X-Forwarded-Port": "9,3000"}) == 200
    for port in ("3000,80", "", "x", "-3000", "3000:3000"):
        assert await answer("POST", {**origin, "X-Forwarded-Port": port}) == 403
    assert await answer("POST", {"Origin": "http://evil.org:3000", "X-Forwarded-Port": "3000"}) == 403
    for other in ("127.0.0.1:2026", "localhost:4000"):
        headers = {**origin, "X-Forwarded-Port": "3000", "X-Forwarded-Host": other}
        assert await answer("POST", headers) == 403


async def test_a_trusted_proxy_says_where_the_page_is() -> None:
    headers = {"Origin": PAGE, "X-Forwarded-Host": "app.example.org"}

    assert await answer("POST", headers, trusted="127.0.0.0/8") == 200
    assert await answer("POST", headers, trusted="10.0.0.0/8") == 403
    assert await answer("GET", headers) == 403
    assert await answer("POST", {**headers, "Origin": "https://evil.org"}, trusted="127.0.0.0/8") == 403
    assert await answer("POST", {**headers, "Host": "evil.org"}, trusted="127.0.0.0/8") == 403
    lan = {**headers, "Host": "gateway:8001"}
    assert await answer("POST", lan, checks_host=False, trusted="127.0.0.0/8") == 200
    assert await answer("POST", lan, checks_host=False) == 403


async def test_the_name_of_a_listed_page_is_served() -> None:
    for headers in ({"Host": "app.example.org"}, {"X-Forwarded-Host": "app.example.org"}):
        assert await answer("GET", headers, origins=(PAGE,)) == 200
        assert await answer("POST", {**headers, "Origin": PAGE}, origins=(PAGE,)) == 200
        assert await answer("POST", {**headers, "Origin": "https://evil.org"}, origins=(PAGE,)) == 403
        # Not every page under that name is the listed one.
        assert await answer("POST", {**headers, "Origin": "http://app.example.org"}, origins=(PAGE,)) == 403
    for headers in ({"Host": "app.example.org:2026"}, {"X-Forwarded-Host": "app.example.org:2026"}):
        assert await answer("GET", headers, origins=(PAGE,)) == 403


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


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("[::1]:80", Address("::1", 80)),
        ("A:1", Address("a", 1)),
        ("a", Address("a", None)),
        ("", None),
        ("[", None),
        ("a:0", None),
        ("a:65536", None),
        ("a:b", None),
        ("::1", None),
    ],
)
def test_an_address_is_read_from_a_header(text: str, address: Address | None) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("x", False)],
)
def test_loopback_is_told_from_the_rest(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
