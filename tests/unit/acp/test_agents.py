"""Agents of other programs, as real processes: what they answer, and every way they misbehave."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.waiting import until

from deerflow.acp.agents import AcpAgents, AcpAnswer, AcpProgress
from deerflow.acp.wire import WireLimits
from deerflow.config.agents import AcpAgentSettings
from deerflow.config.extensions import McpServerSettings
from deerflow.errors import AcpError, NotFoundError
from deerflow.programs import MARK, _owner_mark, kill_orphans

SUPPORT = Path(__file__).parents[2] / "support"
GOOD = ("echo", "work", "outside", "environment", "model", "beg", "mcp")
LIMITS = WireLimits(line_bytes=1_000_000, burst_messages=1000, burst_seconds=100, total_messages=1200)


def agents(mode: str, *, limits: WireLimits = LIMITS, **settings: Any) -> AcpAgents:
    script = "acp_agent.py" if mode in GOOD else "acp_broken.py"
    agent = AcpAgentSettings.model_validate(
        {"command": sys.executable, "args": (str(SUPPORT / script), mode), "description": "helps", **settings}
    )
    env = {"PATH": os.environ["PATH"], "OPENAI_API_KEY": "sk-secret", "HOME": "/nowhere"}
    return AcpAgents({"helper": agent}, env=env, limits=limits)


@pytest.fixture
def seen() -> list[AcpProgress]:
    return []


@pytest.fixture
def ask(tmp_path: Path, seen: list[AcpProgress]) -> Callable[..., Any]:
    async def asking(mode: str, prompt: str = "hello", **settings: Any) -> AcpAnswer:
        return await agents(mode, **settings).ask(
            "helper", prompt, workspace=tmp_path / "acp-workspace", watch=seen.append
        )

    return asking


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_an_agent_answers_and_its_messages_are_streamed(ask: Any, seen: list[AcpProgress]) -> None:
    answer = await ask("echo", "count to three\n三")

    assert answer == AcpAnswer("you said: count to three\n三", "end_turn")
    assert [(each.kind, each.text) for each in seen] == [
        ("message", "you said: "),
        ("message", "count to three\n三"),
    ]


async def test_an_agent_works_on_files_of_its_workspace_and_is_refused_what_it_may_not_do(
    ask: Any, seen: list[AcpProgress], tmp_path: Path
) -> None:
    answer = await ask("work", "Title")

    report = tmp_path / "acp-workspace" / "notes" / "report.md"
    assert report.read_text() == "# Title\nsecond\n"
    assert answer.text == f"{report} has 'second', permission: no"
    assert answer.refused == ("rm -rf /",)
    assert [(each.kind, each.text, each.status) for each in seen][:-1] == [
        ("plan", "[in_progress] write it down", None),
        ("tool_call", "write report", "pending"),
        ("tool_call", "write report", "completed"),
        ("permission", "rm -rf /", "refused"),
    ]


async def test_with_auto_approval_the_narrowest_permission_is_given(ask: Any) -> None:
    answer = await ask("work", auto_approve_permissions=True)

    assert answer.text.endswith("permission: once")
    assert answer.refused == ()


async def test_files_outside_the_workspace_are_refused(ask: Any) -> None:
    answer = await ask("outside")

    assert answer.text == ", ".join(["Invalid params"] * 5)


async def test_only_usual_and_declared_variables_reach_the_agent(ask: Any) -> None:
    answer = await ask("environment", env={"TOKEN": "t-1"})

    variables = dict(line.split("=", 1) for line in answer.text.splitlines())
    variables.pop("LC_CTYPE", None)  # Python sets it for itself
    assert variables.pop("DEERFLOW_PROGRAM")
    assert variables == {"PATH": os.environ["PATH"], "HOME": "/nowhere", "TOKEN": "t-1"}


async def test_the_model_of_the_settings_is_chosen(ask: Any) -> None:
    assert (await ask("model", model="large")).text == "large"


async def test_only_named_mcp_servers_are_handed_on(tmp_path: Path, seen: list[AcpProgress]) -> None:
    servers = {
        "files": {"command": "mcp-files", "args": ["/x"], "env": {"KEY": "k-1"}},
        "web": {"url": "http://127.0.0.1:1/mcp", "headers": {"X-Key": "k-2"}},
        "off": {"command": "mcp-off", "enabled": False},
        "secret": {"command": "mcp-secret"},
    }
    known = {name: McpServerSettings.model_validate(server) for name, server in servers.items()}
    agent = AcpAgentSettings.model_validate(
        {
            "command": sys.executable,
            "args": (str(SUPPORT / "acp_agent.py"), "mcp"),
            "description": "helps",
            "mcp_servers": ("files", "web", "off", "nowhere"),
        }
    )
    there = AcpAgents({"helper": agent}, env={"PATH": os.environ["PATH"]}, mcp_servers=known)

    answer = await there.ask("helper", "go", workspace=tmp_path, watch=seen.append)

    assert json.loads(answer.text) == [
        {"name": "files", "command": "mcp-files", "args": ["/x"], "env": [{"name": "KEY", "value": "k-1"}]},
        {
            "type": "http",
            "name": "web",
            "url": "http://127.0.0.1:1/mcp",
            "headers": [{"name": "X-Key", "value": "k-2"}],
        },
    ]


async def test_agents_of_a_server_that_is_gone_are_ended_and_those_of_a_living_one_left_alone() -> None:
    def agent(owner: str) -> subprocess.Popen[bytes]:
        env = {"PATH": os.environ["PATH"], MARK: f"{owner}/call"}
        return subprocess.Popen(["sleep", "600"], env=env)

    namespace = _owner_mark().partition("-")[0]
    with agent(f"{namespace}-4194305-1") as orphan, agent(_owner_mark()) as ours, agent("1-2-3") as elsewhere:
        await asyncio.to_thread(kill_orphans)

        assert orphan.wait(30) == -signal.SIGKILL
        assert ours.poll() is elsewhere.poll() is None
        ours.kill()
        elsewhere.kill()


@pytest.mark.parametrize("mode", ["banner", "noise"])
async def test_a_banner_or_invalid_lines_between_messages_do_no_harm(ask: Any, mode: str) -> None:
    assert (await ask(mode)).text == "hello" * (mode == "banner")


async def test_messages_that_make_no_sense_are_refused_or_passed_over(
    ask: Any, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await ask("nonsense")

    assert sorted(answer.text.rstrip("; ").split("; ")) == ["90: -32601", "91: -32601", "92: -32602"]
    assert caplog.records == []


async def test_an_agent_that_hangs_is_stopped_in_time_with_its_helpers(ask: Any) -> None:
    for seconds in (2, 10, 40):
        with pytest.raises(
            AcpError, match=f"'helper' failed: still working after {seconds} seconds"
        ) as caught:
            await ask("hang", timeout_seconds=seconds)
        if "helper " in str(caught.value):  # else the machine is busy, and it had not even begun
            break

    helper = int(str(caught.value).split("helper ")[-1])
    await until(lambda: not is_alive(helper))


async def test_an_agent_that_never_greets_is_stopped_in_time(ask: Any) -> None:
    with pytest.raises(AcpError, match="still working after 1 seconds"):
        await ask("deaf", timeout_seconds=1)


async def test_cancelling_the_caller_ends_the_whole_tree_at_once(tmp_path: Path) -> None:
    received: asyncio.Queue[AcpProgress] = asyncio.Queue()
    asking = asyncio.create_task(
        agents("hang").ask("helper", "go", workspace=tmp_path, watch=received.put_nowait)
    )
    async with asyncio.timeout(60):
        helper = int((await received.get()).text.split()[1])
    assert is_alive(helper)

    asking.cancel()
    async with asyncio.timeout(60):
        await asyncio.wait([asking])

    assert asking.cancelled()
    await until(lambda: not is_alive(helper))


async def test_an_agent_that_dies_is_reported_with_exit_code_last_words_and_what_it_said(ask: Any) -> None:
    with pytest.raises(AcpError) as caught:
        await ask("die")

    text = str(caught.value)
    assert "it ended with exit code 3; its last output: out of luck" in text
    assert text.endswith("It said so far:\nhalf of the work is done")


async def test_what_an_agent_was_given_in_secret_is_not_in_its_last_words(ask: Any) -> None:
    with pytest.raises(AcpError, match=r"its last output: \(hidden\)") as caught:
        await ask("die", env={"TOKEN": "out of luck"})

    assert "luck" not in str(caught.value)


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("partial", "it ended in the middle of a message"),
        ("flood", "it sends too much: more than 1000 messages within 100 seconds"),
        ("long", "it sent a line of more than 1000000 bytes"),
        ("garbage", "its output is not the protocol's, such as '"),
        ("refuse", r"it answered session/prompt with an error: Authentication required \(log in first\)"),
        ("wrong", "its answer to initialize is not the protocol's"),
        ("old", "it speaks version 0 of ACP, we speak 1"),
    ],
)
async def test_a_broken_agent_gets_a_clear_error(ask: Any, mode: str, reason: str) -> None:
    async with asyncio.timeout(60):
        with pytest.raises(AcpError, match=f"agent 'helper' failed: {reason}"):
            await ask(mode)


async def test_an_agent_that_asks_without_end_is_granted_no_more_at_some_point(
    tmp_path: Path, seen: list[AcpProgress]
) -> None:
    there = agents("beg", limits=WireLimits(), auto_approve_permissions=True)

    answer = await there.ask("helper", "go", workspace=tmp_path, watch=seen.append)

    assert answer.text == "1000 granted"
    assert len(seen) == 1001


async def test_a_program_that_is_not_there_is_named(ask: Any) -> None:
    with pytest.raises(AcpError, match="'/no/such/agent' cannot be started: No such file or directory"):
        await ask("echo", command="/no/such/agent")


async def test_an_unknown_agent_is_answered_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="ACP agent 'nobody' not found; there are: helper"):
        await agents("echo").ask("nobody", "hi", workspace=tmp_path, watch=lambda progress: None)


async def test_more_messages_than_one_call_may_have_are_a_flood_however_slow_they_come(
    tmp_path: Path,
) -> None:
    there = agents("flood", limits=WireLimits(burst_seconds=0, total_messages=300))

    with pytest.raises(AcpError, match="it sends too much: more than 300 messages in one call"):
        await there.ask("helper", "go", workspace=tmp_path, watch=lambda progress: None)
