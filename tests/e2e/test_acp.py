"""An agent of another program, reached by the lead agent over HTTP."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.gateway import parse_sse, running_gateway
from support.model_server import ScriptedModel, call, text

SUPPORT = Path(__file__).parents[1] / "support"


def agent(script: str, mode: str, **more: Any) -> dict[str, Any]:
    return {
        "command": sys.executable,
        "args": [str(SUPPORT / script), mode],
        "description": f"does {mode}",
        **more,
    }


@pytest.fixture
async def api(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[httpx.AsyncClient]:
    agents = {
        "worker": agent("acp_agent.py", "work"),
        "halting": agent("acp_agent.py", "pieces", env={"GIVEN": "canary-given-4455"}),
        "talkative": agent("acp_agent.py", "environment", env={"GIVEN": "canary-given-4455"}),
        "dying": agent("acp_broken.py", "die"),
        "hanging": agent("acp_broken.py", "hang", timeout_seconds=1),
        "flooding": agent("acp_broken.py", "flood", timeout_seconds=30),
    }
    with running_gateway(tmp_path, model.base_url, acp_agents=agents) as gateway:
        async with gateway.client() as client:
            yield client


async def run(api: httpx.AsyncClient, question: str) -> list[tuple[str, Any, str | None]]:
    body = {
        "input": {"messages": [{"type": "human", "content": question}]},
        "stream_mode": ["values", "custom"],
    }
    response = await api.post("/threads/t1/runs/stream", json=body)
    assert response.status_code == 200, response.text
    return parse_sse(response.text)


async def test_the_lead_hands_work_to_an_agent_and_reads_what_it_left(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(
        call("invoke_acp_agent", agent="worker", prompt="The report"),
        call("read_file", description="see", path="/mnt/acp-workspace/notes/report.md"),
        call("write_file", description="try", path="/mnt/acp-workspace/x", content="no"),
        text("Done."),
    )

    events = await run(api, "let the worker write")

    messages = [data for kind, data, _ in events if kind == "values"][-1]["messages"]
    answer, report, refused = [message["content"] for message in messages if message["type"] == "tool"]
    assert answer.startswith("/mnt/acp-workspace/notes/report.md has 'second', permission: no")
    assert "Refused for lack of permission: rm -rf /; an operator may set" in answer
    assert "# The report\nsecond" in report
    assert "/mnt/acp-workspace/x is read-only" in refused
    steps = [data for kind, data, _ in events if kind == "custom" and data["type"] == "acp_progress"]
    assert [(step["kind"], step["status"]) for step in steps] == [
        ("plan", None),
        ("tool_call", "pending"),
        ("tool_call", "completed"),
        ("permission", "refused"),
    ]
    said = "".join(
        data["text"] for kind, data, _ in events if kind == "custom" and data["type"] == "tool_output"
    )
    assert said.startswith("/mnt/acp-workspace/notes/report.md")
    offer = next(
        tool["function"] for tool in model.requests[0].body["tools"] if "acp" in tool["function"]["name"]
    )
    assert "- worker: does work" in offer["description"]


async def test_agents_that_hang_flood_or_die_get_clear_errors_and_the_run_goes_on(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(
        call("invoke_acp_agent", agent="dying", prompt="go")
        + call("invoke_acp_agent", agent="hanging", prompt="go")
        + call("invoke_acp_agent", agent="flooding", prompt="go")
        + call("invoke_acp_agent", agent="nobody", prompt="go"),
        text("None of them managed."),
    )

    events = await run(api, "try them all")

    messages = [data for kind, data, _ in events if kind == "values"][-1]["messages"]
    died, hung, flooded, unknown = [message for message in messages if message["type"] == "tool"]
    assert {message["status"] for message in (died, hung, flooded, unknown)} == {"error"}
    assert "exit code 3; its last output: out of luck" in died["content"]
    assert "half of the work is done" in died["content"]
    assert "still working after 1 seconds" in hung["content"]
    # On a machine that is busy with other things a flood is but a trickle, and its time runs out.
    assert "it sends too much" in flooded["content"] or "still working after 30 seconds" in flooded["content"]
    assert "there are: dying, flooding, halting, hanging, talkative, worker" in unknown["content"]
    assert messages[-1]["content"] == "None of them managed."


async def test_what_an_agent_was_given_is_not_in_what_it_answers(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(
        call("invoke_acp_agent", agent="talkative", prompt="go"),
        call("invoke_acp_agent", agent="halting", prompt="go"),
        text("Done."),
    )

    events = await run(api, "ask it")

    shown = json.dumps([data for _, data, _ in events])
    assert "GIVEN=(hidden)" in shown
    assert "canary-given-4455" not in shown + json.dumps([request.body for request in model.requests])
    outputs = [data for kind, data, _ in events if kind == "custom" and data["type"] == "tool_output"]
    live = "".join(data["text"] for data in outputs)
    assert live.endswith(f"{'.' * 5000}(hidden)"), "a secret in two pieces is hidden as well"
