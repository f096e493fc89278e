"""The streams that the page's reducer is tested on are what the gateway really sends.

`DEERFLOW_RECORD=1` writes them anew to `web/src/run/recordings`; without it, this test checks that a fresh
stream has the same kinds of events in the same order, so that a change of the wire shows here.
"""

import itertools
import json
import os
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.gateway import Gateway, parse_sse
from support.model_server import Reply, ScriptedModel, call, calls, reasoning, status, text

RECORDINGS = Path(__file__).parents[2] / "web/src/run/recordings"
UNUSED = ("langgraph_", "ls_", "lc_", "checkpoint_ns", "thread_data", "sandbox")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
KEPT = ("langgraph_node",)

TASKS = calls(
    *(
        call("task", description=f"Study {name}", prompt=f"about {name}", subagent_type="general-purpose")
        for name in ("Alpha", "Beta")
    )
)
SCRIPTS: dict[str, tuple[Reply, ...]] = {
    "answer": (reasoning("Let me think.") + text("It is **42**, as everyone knows."),),
    "tools": (
        text("I will look.") + call("ls", description="Look around", path="/mnt/user-data/workspace"),
        call("bash", description="Print two lines", command="echo one; echo two"),
        call(
            "write_file", description="Write it", path="/mnt/user-data/outputs/report.md", content="# Report"
        ),
        call("present_files", filepaths=["/mnt/user-data/outputs/report.md"]),
        text("Done: [report.md](/mnt/user-data/outputs/report.md)."),
    ),
    "tasks": (TASKS, text("Both were studied.")),
    "question": (
        call(
            "ask_clarification",
            question="Which form?",
            clarification_type="approach_choice",
            options=["Table", "List"],
        ),
    ),
    "failure": (status(401, message="the key is not valid"),),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_recording_is_what_the_gateway_sends(name: str, gateway: Gateway, model: ScriptedModel) -> None:
    model.on("about Alpha", call("ls", description="Look", path="/mnt/user-data"), text("Alpha is fine."))
    model.on("about Beta", text("Beta is fine."))
    model.will_say(*SCRIPTS[name])

    events = _record(gateway, f"Please do: {name}")

    file = RECORDINGS / f"{name}.sse"
    if os.environ.get("DEERFLOW_RECORD"):
        file.write_text("".join(f"event: {kind}\ndata: {data}\nid: {at}\n\n" for kind, data, at in events))
    kept = [(kind, json.dumps(data), at) for kind, data, at in parse_sse(file.read_text())]
    assert _outline(events) == _outline(kept)


def _record(gateway: Gateway, message: str) -> list[tuple[str, str, str]]:
    """Run once, read the run's log from its start, and leave out what differs from run to run."""
    body = {
        "assistant_id": "lead_agent",
        "input": {"messages": [{"type": "human", "content": [{"type": "text", "text": message}]}]},
        "context": {"thinking_enabled": True, "is_plan_mode": False, "subagent_enabled": True},
        "stream_mode": ["values", "messages-tuple", "updates", "custom"],
        "on_disconnect": "continue",
    }
    with httpx.Client(base_url=gateway.api, timeout=120, trust_env=False, verify=False) as client:
        thread_id = client.post("/threads", json={}).json()["thread_id"]
        stream = client.post(f"/threads/{thread_id}/runs/stream", json=body).text
    numbers = itertools.count(1)
    names: dict[str, str] = {}
    clean = UUID.sub(lambda found: names.setdefault(found[0], f"id-{next(numbers)}"), stream)
    events = parse_sse(clean)
    return [
        (kind, json.dumps(_without_noise(data), ensure_ascii=False), f"1700000000000-{number}")
        for number, (kind, data, _) in enumerate(events)
    ]


def _without_noise(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_noise(item) for item in value]
    if isinstance(value, dict):
        return {
            key: _without_noise(item)
            for key, item in value.items()
            if key in KEPT or not key.startswith(UNUSED)
        }
    return value


def _outline(events: list[tuple[str, str, str]]) -> list[str]:
    """Return the kinds of events; how many chunks or steps there are of a kind is chance."""
    kinds = [
        f"{kind} {json.loads(data).get('type')}" if kind == "custom" else kind for kind, data, _ in events
    ]
    return sorted(set(kinds))
