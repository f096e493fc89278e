"""MCP over HTTP as older and odder servers speak it, answered by hand."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from support.mcp_server import serving_app

from deerflow.config.extensions import McpServerSettings
from deerflow.errors import McpError
from deerflow.mcp import McpServer
from deerflow.mcp.base import ServerEnvironment
from deerflow.mcp.session import connect

from .conftest import LONG, OldServer


async def test_headers_of_the_settings_go_with_every_request(server: McpServer, old: OldServer) -> None:
    assert [tool.call_name for tool in await server.tools()] == ["old_act"]
    assert (await server.call("act", {})).text == "acted"

    assert {headers.get("authorization") for headers in old.headers} == {"Bearer t-very-secret"}


def refusal(message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": message}}


@pytest.mark.parametrize("status", [400, 404])
@pytest.mark.parametrize(
    "body", [None, refusal("Session not found"), refusal("Bad Request: not initialized")]
)
async def test_a_session_that_the_server_forgot_is_begun_anew_and_the_call_made_once(
    status: int, body: Any, server: McpServer, old: OldServer
) -> None:
    await server.tools()
    plain = Response("Bad Request", status_code=status)
    old.unknown = lambda: JSONResponse(body, status_code=status) if body else plain
    acted: list[int] = []

    def act() -> None:
        acted.append(1)

    old.act = act
    old.session = 2

    assert (await server.call("act", {})).text == "acted"
    assert acted == [1]


async def test_a_refusal_of_one_call_costs_neither_session_nor_a_second_call(
    server: McpServer, old: OldServer
) -> None:
    await server.tools()
    refused: list[int] = []

    def refuse() -> Response:
        refused.append(1)
        return JSONResponse(refusal("arguments are wrong"), status_code=400)

    old.act = refuse
    with pytest.raises(McpError, match="arguments are wrong"):
        await server.call("act", {})

    assert refused == [1]
    assert server.status.state == "ready"


def floods() -> Response:
    return JSONResponse({"x": "y" * 200_000})


def packed() -> Response:
    return Response(b"\x1f\x8b", headers={"content-encoding": "gzip", "content-type": "application/json"})


def away() -> Response:
    return RedirectResponse("http://169.254.169.254/", status_code=307)


def breaks_off() -> Response:
    async def half() -> Any:
        yield b'{"jsonrpc"'
        raise ConnectionError

    return StreamingResponse(half(), media_type="application/json", headers={"content-length": "9999"})


@pytest.mark.parametrize(
    ("act", "problem"),
    [
        (floods, "it answered with more than 100000 bytes"),
        (packed, "it packs its answers though it was asked not to"),
        (away, "Redirect to http://169.254.169.254/ not followed"),
        (breaks_off, "lost during the call"),
        (lambda: Response("<h1>Hello</h1>", media_type="text/html"), "Unexpected content type"),
        (lambda: Response(status_code=401), "HTTP status 401"),
        (lambda: Response(status_code=500), "HTTP status 500"),
        (lambda: Response("nothing", media_type="application/json"), "Failed to parse JSON"),
    ],
)
async def test_answers_that_are_none_cost_one_call(
    act: Callable[[], Response], problem: str, server: McpServer, old: OldServer
) -> None:
    await server.tools()
    old.act = act

    with pytest.raises(McpError, match=problem) as caught:
        await server.call("act", {})

    assert "t-very-secret" not in str(caught.value)
    old.act = lambda: None
    async with asyncio.timeout(30):
        assert (await server.call("act", {})).text == "acted"


async def test_a_server_that_wants_another_key_says_so(environment: ServerEnvironment) -> None:
    async def refuse(request: Request) -> Response:
        return Response(status_code=401)

    with serving_app(Starlette(routes=[Route("/mcp", refuse, methods=["POST"])])) as address:
        settings = McpServerSettings.model_validate({"url": f"{address}/mcp", "run_wait_seconds": LONG})
        server = McpServer("locked", settings, connect=connect, environment=environment)
        assert await server.tools() == ()

    assert "HTTP status 401" in str(server.status.problem)


class TeamServices:
    """Gives out tokens, one after the other, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answer: dict[str, Any] = {"expires_in": 3600, "token_type": "bearer"}
        self.status = 200

    async def give(self, request: Request) -> Response:
        self.asked.append(dict(await request.form()))
        return JSONResponse({"access_token": f"token-{len(self.asked)}", **self.answer}, self.status)


@pytest.fixture
def office() -> TeamServices:
    return TeamServices()


@pytest.fixture
async def guarded(office: TeamServices, old: OldServer, environment: ServerEnvironment) -> Any:
    """A server that is reached with tokens."""
    routes = [Route("/token", office.give, methods=["POST"]), *old.app.routes]
    with serving_app(Starlette(routes=routes)) as address:
        oauth = {
            "token_url": f"{address}/token",
            "grant_type": "refresh_token",
            "client_id": "deerflow",
            "client_secret": "client-secret-1",
            "refresh_token": "refresh-1",
            "extra_token_params": {"tenant": "forest"},
        }
        entry = {"url": f"{address}/mcp", "oauth": oauth, "run_wait_seconds": LONG}
        settings = McpServerSettings.model_validate(entry)
        server = McpServer("guarded", settings, connect=connect, environment=environment)
        yield server
        await server.aclose()


async def test_a_token_is_fetched_once_and_goes_with_every_request(
    guarded: McpServer, office: TeamServices, old: OldServer
) -> None:
    await guarded.tools()
    await asyncio.gather(*(guarded.call("act", {}) for _ in range(5)))

    assert office.asked == [
        {
            "grant_type": "refresh_token",
            "client_id": "deerflow",
            "client_secret": "client-secret-1",
            "refresh_token": "refresh-1",
            "tenant": "forest",
        }
    ]
    assert {headers["authorization"] for headers in old.headers} == {"Bearer token-1"}


async def test_a_token_that_is_refused_or_has_ended_is_renewed(
    guarded: McpServer, office: TeamServices, old: OldServer
) -> None:
    office.answer = {"expires_in": 1, "refresh_token": "refresh-2", "token_type": "MAC"}
    await guarded.tools()
    office.answer = {"expires_in": "soon"}
    refusals = iter([Response(status_code=401)])
    old.act = lambda: next(refusals, None)

    assert (await guarded.call("act", {})).text == "acted"
    assert office.asked[-1]["refresh_token"] == "refresh-2"
    assert old.headers[0]["authorization"] == "MAC token-1"
    last = [headers["authorization"] for headers in old.headers if headers["authorization"]][-1]
    assert last == f"Bearer token-{len(office.asked)}"


@pytest.mark.parametrize(
    ("status", "answer", "problem"),
    [
        (400, {}, "its token could not be fetched: HTTP status 400"),
        (200, {"access_token": None}, "the answer has no `access_token`"),
    ],
)
async def test_a_token_that_is_not_given_is_told(
    status: int, answer: dict[str, Any], problem: str, guarded: McpServer, office: TeamServices
) -> None:
    office.status, office.answer = status, answer

    assert await guarded.tools() == ()

    assert problem in str(guarded.status.problem)
    assert "secret" not in str(guarded.status.problem)
