"""One MCP server: what it offers and answers, and every way it misbehaves."""

import asyncio
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.mcp_server import make_server, serving_mcp
from support.waiting import until

from deerflow.config.extensions import McpServerSettings
from deerflow.errors import McpError
from deerflow.mcp import McpServer, McpServers, ToolHints
from deerflow.mcp import server as server_module
from deerflow.mcp.base import Limits, ServerEnvironment
from deerflow.mcp.session import connect

from .conftest import BROKEN, GOOD, LONG, NewServer, settings_of


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture(params=["stdio", "http", "sse"])
async def any_server(
    request: pytest.FixtureRequest, environment: ServerEnvironment, new_server: NewServer
) -> Any:
    if request.param == "stdio":
        yield new_server(GOOD)
        return
    with serving_mcp(kind=request.param) as url:
        settings = McpServerSettings.model_validate(
            {"type": request.param, "url": url, "run_wait_seconds": LONG}
        )
        server = McpServer("deer", settings, connect=connect, environment=environment)
        yield server
        await server.aclose()


async def test_it_offers_its_tools_and_runs_them(any_server: McpServer) -> None:
    assert any_server.status.state == "idle"

    tools = {tool.name: tool for tool in await any_server.tools()}
    said: list[str] = []
    answers = await asyncio.gather(
        any_server.call("add", {"a": 40, "b": 2}),
        any_server.call("wait", {"seconds": 0}, progress=said.append),
        any_server.call("fail", {}),
        any_server.call("add", {"a": "many"}),
    )

    assert any_server.status.state == "ready"
    assert tools["add"].call_name == "deer_add"
    assert tools["add"].hints == ToolHints(read_only=True)
    assert tools["erase"].hints == ToolHints(destructive=True)
    assert [(answer.text, answer.is_error) for answer in answers[:3]] == [
        ("42", False),
        ("waited", False),
        ("Error executing tool fail: the deer ran away", True),
    ]
    assert answers[3].is_error
    assert said == ["one of three"]


async def test_content_of_every_kind_becomes_text_and_files(any_server: McpServer) -> None:
    answer = await any_server.call("mixed", {})

    assert answer.text == (
        "look\n\n[note://1]\na note\n\n[more: https://example.com/more]\n\n"
        "[image/png was left out: it is no base64]"
    )
    assert [(file.mime_type, file.name, len(file.data)) for file in answer.files] == [
        ("image/png", "", 70),
        ("application/octet-stream", "data.bin", 2),
    ]


async def test_changed_tools_are_taken_up(any_server: McpServer) -> None:
    before = await any_server.tools()
    assert await any_server.tools() is before

    await any_server.call("learn", {"name": "fresh"})
    await until(lambda: "deer_fresh" in any_server.status.tools)  # the new tool is offered

    assert (await any_server.call("fresh", {})).text == "learned"


async def test_a_cancelled_call_is_taken_back(tmp_path: Path, new_server: NewServer) -> None:
    log = tmp_path / "log"
    server = new_server(GOOD, str(log))
    waiting = asyncio.create_task(server.call("wait", {"seconds": 600}))
    await until(lambda: log.exists() and "wait" in log.read_text())  # the call has begun

    waiting.cancel()
    await asyncio.wait([waiting])

    await until(lambda: "cancelled" in log.read_text())  # the server was told
    assert waiting.cancelled()
    assert (await server.call("add", {"a": 1, "b": 1})).text == "2"


async def test_a_call_that_takes_too_long_is_stopped(tmp_path: Path, new_server: NewServer) -> None:
    log = tmp_path / "log"
    server = new_server(BROKEN, "plain", str(log), tool_call_timeout=0.5)
    await server.tools()

    with pytest.raises(McpError, match=r"gave no answer within 0.5 seconds and was told to stop"):
        await server.call("wait", {"seconds": 600})

    await until(lambda: "cancelled" in log.read_text())  # the server was told
    assert await sum_of_one_and_one(server) == "2"
    assert log.read_text().count("started") == 1


async def sum_of_one_and_one(server: McpServer) -> str:
    """Ask until an answer comes in time: on a busy machine any may come too late."""
    async with asyncio.timeout(60):
        while True:
            with suppress(McpError):
                return (await server.call("add", {"a": 1, "b": 1})).text


async def test_a_server_that_dies_mid_call_says_so_and_is_there_for_the_next(
    tmp_path: Path, new_server: NewServer
) -> None:
    log = tmp_path / "log"
    server = new_server(GOOD, str(log))
    other = asyncio.create_task(server.call("wait", {"seconds": 600}))
    await until(lambda: log.exists() and "wait" in log.read_text())  # the other call has begun

    with pytest.raises(McpError, match=r"lost during the call: it ended with exit code 3.*out of luck"):
        await server.call("die", {})

    with pytest.raises(McpError, match="may have had an effect"):
        await other
    assert (await server.call("add", {"a": 1, "b": 1})).text == "2"
    assert log.read_text().count("started") == 2


async def test_a_server_that_ends_between_calls_is_opened_again(
    tmp_path: Path, new_server: NewServer
) -> None:
    log = tmp_path / "log"
    server = new_server(BROKEN, "plain", str(log))
    await server.tools()
    os.kill(int(log.read_text().split()[1]), 9)
    await until(lambda: server.status.state != "ready")  # its end is noticed
    assert "exit code -9" in str(server.status.problem)

    tools = await server.tools()

    assert tools
    assert server.status.state == "ready"


async def test_many_who_need_it_at_once_open_it_once(tmp_path: Path, new_server: NewServer) -> None:
    log = tmp_path / "log"
    server = new_server(BROKEN, "plain", str(log))

    await asyncio.gather(*(server.call("add", {"a": n, "b": 1}) for n in range(20)), server.tools())

    assert log.read_text().count("started") == 1


async def test_only_usual_and_declared_variables_reach_it(new_server: NewServer, tmp_path: Path) -> None:
    server = new_server(BROKEN, "plain", env={"TOKEN": "t-12345"})

    variables = dict(line.split("=", 1) for line in (await server.call("environment", {})).text.splitlines())

    assert variables.pop("DEERFLOW_PROGRAM")
    variables.pop("LC_CTYPE", None)  # Python sets it for itself
    assert variables == {
        "PATH": os.environ["PATH"],
        "HOME": "/nowhere",
        "TOKEN": "t-12345",
        "cwd": str(tmp_path),
    }


async def test_nothing_is_left_after_closing(tmp_path: Path, new_server: NewServer) -> None:
    log = tmp_path / "log"
    server = new_server(BROKEN, "plain", str(log))
    helper = int((await server.call("spawn", {})).text)
    program = int(log.read_text().split()[1])
    assert is_alive(helper)

    await server.aclose()

    await until(lambda: not is_alive(program) and not is_alive(helper))  # both are gone
    assert server.status.state == "idle"


async def test_a_server_that_is_still_opening_is_closed_at_once(
    new_server: NewServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "CLOSING_SECONDS", 600.0)  # waiting for it would end in a failure
    server = new_server(BROKEN, "mute")
    asking = asyncio.create_task(server.tools())
    await until(lambda: server.status.state == "opening")  # it is being opened

    await server.aclose()

    assert await asking == ()
    assert server.status.state == "idle"


async def test_a_server_that_keeps_saying_that_its_tools_changed_still_works(new_server: NewServer) -> None:
    server = new_server(BROKEN, "restless")
    assert [tool.name for tool in await server.tools()] == ["act"]

    with pytest.raises(McpError, match="no such luck"):
        await server.call("act", {})

    assert server.status.state == "ready"


@pytest.mark.parametrize(
    ("mode", "problem"),
    [
        ("die", r"exit code 4; its last output: token is \(hidden\)"),
        ("flood", "it sends too much|closed"),
        ("huge", "a message of more than 1000000 bytes"),
        ("garbage", "something other than MCP messages"),
        ("nonsense", "not the protocol's"),
        ("error", "failed at act: no such luck"),
        ("hang", "gave no answer within"),
    ],
)
async def test_a_server_that_misbehaves_costs_one_call(
    mode: str, problem: str, new_server: NewServer
) -> None:
    limits = Limits(message_bytes=1_000_000, burst_messages=300, burst_seconds=100)
    more = {"tool_call_timeout": 1.0} if mode == "hang" else {}
    server = new_server(BROKEN, mode, limits=limits, env={"TOKEN": "sk-very-secret-1"}, **more)
    assert [tool.name for tool in await server.tools()] == ["act"]

    with pytest.raises(McpError, match=problem) as caught:
        await server.call("act", {"x": 1})

    assert "secret" not in str(caught.value)
    assert [tool.name for tool in await server.tools()] == ["act"]


@pytest.mark.parametrize(
    ("mode", "problem", "more"),
    [
        ("quit", "it ended with exit code 5; its last output: no license found", {}),
        ("list", "its list of tools is not the protocol's", {}),
        ("mute", "it was not ready after 1 seconds", {"session_init_timeout": 1}),
    ],
)
async def test_a_server_that_does_not_start_offers_nothing_and_is_left_alone_for_a_while(
    mode: str,
    problem: str,
    more: dict[str, Any],
    new_server: NewServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "FIRST_PAUSE_SECONDS", 1000.0)
    server = new_server(BROKEN, mode, **more)

    with caplog.at_level(logging.WARNING):
        assert await server.tools() == ()
        assert await server.tools() == ()

    assert server.status.state == "failed"
    assert problem in str(server.status.problem)
    assert len([record for record in caplog.records if "failed" in record.message]) == 1
    with pytest.raises(McpError, match="cannot be reached"):
        await server.call("act", {})


async def test_a_server_that_is_slow_to_start_is_left_out_until_it_is_ready(
    tmp_path: Path, environment: ServerEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    script, sign = tmp_path / "slow.sh", tmp_path / "sign"
    good = settings_of(BROKEN, "plain")
    wait = f"while [ ! -e {sign} ]; do sleep 0.05; done"
    script.write_text(f"#!/bin/sh\n{wait}\nexec {good.command} {good.args[0]} plain\n")
    script.chmod(0o755)
    settings = McpServerSettings.model_validate({"command": str(script), "run_wait_seconds": 0.2})
    server = McpServer("slow", settings, connect=connect, environment=environment)

    with caplog.at_level(logging.WARNING):
        first = await asyncio.gather(*(server.tools() for _ in range(3)))
        early = server.status
        sign.touch()
        await until(lambda: server.status.state == "ready")  # it started after all

    assert first == [(), (), ()]
    assert (early.state, early.tools) == ("opening", ())
    assert "it was not ready after 0.2 seconds (run_wait_seconds)" in str(early.problem)
    assert "until it is, runs go on without its tools" in str(early.problem)
    assert len([record for record in caplog.records if "was not ready" in record.getMessage()]) == 1
    assert [tool.name for tool in await server.tools()] == ["add", "environment", "spawn", "wait"]
    assert server.status.problem is None
    await server.aclose()


async def test_a_server_that_came_back_is_used_again(
    tmp_path: Path, environment: ServerEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "FIRST_PAUSE_SECONDS", 0.0)
    script = tmp_path / "late.sh"
    settings = McpServerSettings.model_validate({"command": str(script), "run_wait_seconds": LONG})
    server = McpServer("late", settings, connect=connect, environment=environment)
    assert await server.tools() == ()
    assert "cannot be started" in str(server.status.problem)

    good = settings_of(BROKEN, "plain")
    script.write_text(f"#!/bin/sh\nexec {good.command} {good.args[0]} plain\n")
    script.chmod(0o755)

    for _ in range(600):
        if await server.tools():
            break
        await asyncio.sleep(0.05)
    assert server.status.state == "ready"
    assert server.status.problem is None
    await server.aclose()


@pytest.mark.parametrize(
    ("path", "problem"), [("/nothing-here", "HTTP status 404"), (None, "the connection was refused")]
)
async def test_an_address_where_nothing_is_says_so(
    path: str | None, problem: str, environment: ServerEnvironment
) -> None:
    with serving_mcp() as url:
        address = url.replace("/mcp", path) if path else url
        if path:
            server = web_server(address, environment)
            assert await server.tools() == ()
    if not path:
        server = web_server(address, environment)
        assert await server.tools() == ()

    assert problem in str(server.status.problem)
    assert "h-secret" not in str(server.status.problem)


def web_server(url: str, environment: ServerEnvironment) -> McpServer:
    entry = {"url": url, "headers": {"X-Key": "h-secret"}, "run_wait_seconds": LONG}
    return McpServer("web", McpServerSettings.model_validate(entry), connect=connect, environment=environment)


async def test_an_answer_that_is_not_what_was_declared_is_read_all_the_same(new_server: NewServer) -> None:
    assert (await new_server(BROKEN, "lie").call("act", {})).text == "done"


async def test_a_tool_that_can_only_be_called_as_a_task_is_not_offered_and_named(
    new_server: NewServer,
) -> None:
    server = new_server(BROKEN, "tasks")

    assert [tool.name for tool in await server.tools()] == ["soon"]
    assert [(tool.name, "as a task" in tool.reason) for tool in server.status.left_out] == [("later", True)]


async def test_schemas_that_no_provider_would_take_cost_one_tool(new_server: NewServer) -> None:
    server = new_server(BROKEN, "schemas")

    assert [tool.name for tool in await server.tools()] == ["good", "endless"]


async def test_names_and_descriptions_are_made_fit_and_tools_are_counted(new_server: NewServer) -> None:
    names = [tool.call_name for tool in await new_server(BROKEN, "names").tools()]
    many = await new_server(BROKEN, "many").tools()

    assert len(set(names)) == 6
    assert all(len(name) <= 64 for name in names)
    assert len(many) == 500


async def test_an_edit_replaces_what_it_changes_and_leaves_the_rest(
    tmp_path: Path, environment: ServerEnvironment
) -> None:
    logs = {name: tmp_path / name for name in ("a", "b")}
    servers = McpServers(environment)
    entries = {name: settings_of(BROKEN, "plain", str(log)) for name, log in logs.items()}
    servers.use(entries)
    old = {server.name: server for server, _ in await servers.tools()}
    running = asyncio.create_task(old["b"].call("wait", {"seconds": 600}))
    await until(lambda: "wait" in logs["b"].read_text())  # a run uses b

    servers.use({"a": entries["a"], "b": settings_of(BROKEN, "plain", env={"NEW": "1"}), "off": off()})
    now = {server.name: server for server, _ in await servers.tools()}

    assert now["a"] is old["a"]
    assert now["b"] is not old["b"]
    assert sorted(now) == ["a", "b"]
    assert not running.done(), "a run under way keeps what it began with"
    running.cancel()
    await until(lambda: old["b"].status.state == "idle")  # b ends with its last call
    assert (await old["b"].call("add", {"a": 1, "b": 1})).text == "2"
    await until(lambda: old["b"].status.state == "idle")  # and again
    await servers.aclose()
    for log in logs.values():
        pids = [int(line.split()[1]) for line in log.read_text().splitlines() if "started" in line]
        await until(lambda pids=pids: not any(map(is_alive, pids)))  # all are gone


def off() -> McpServerSettings:
    return McpServerSettings.model_validate({"command": "nowhere", "enabled": False})


async def test_a_server_over_http_that_went_away_is_found_again(environment: ServerEnvironment) -> None:
    made = make_server()
    with serving_mcp(made) as url:
        server = web_server(url, environment)
        assert await server.tools()
    with pytest.raises(McpError, match=r"lost during the call|cannot be reached"):
        await server.call("add", {"a": 1, "b": 1})
    await server.aclose()
