"""The lead agent's newer tools over HTTP: what the model saw, and what the client saw."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from support.gateway import Gateway, parse_sse, running_gateway
from support.model_server import Reply, ScriptedModel, call, calls, text
from support.shared import fresh_model, shared_gateway

WORKSPACE = "/mnt/user-data/workspace"
HOST = {"use": "local", "allow_host_bash": True}
RULES = [
    {"tool": "python", "pattern": "secret", "action": "deny"},
    {"tool": "bash", "pattern": "shutdown", "action": "deny"},
    {"tool": "bash", "action": "allow"},
]


gateway = shared_gateway(sandbox=HOST, guardrails={"rules": RULES})
model = fresh_model


async def ask(api: httpx.AsyncClient, thread: str) -> list[tuple[str, Any, str | None]]:
    body = {
        "input": {"messages": [{"type": "human", "content": "go"}]},
        "stream_mode": ["values", "custom"],
    }
    response = await api.post(f"/threads/{thread}/runs/stream", json=body)
    assert response.status_code == 200, response.text
    return parse_sse(response.text)


def results(events: list[tuple[str, Any, str | None]]) -> list[str]:
    values = [data for name, data, _ in events if name == "values"][-1]
    return [str(message["content"]) for message in values["messages"] if message["type"] == "tool"]


def offered(model: ScriptedModel) -> set[str]:
    return {tool["function"]["name"] for tool in model.requests[-1].body["tools"]}


def python(code: str) -> Reply:
    return call("python", description="Compute", code=code)


def replacing(path: str, old: str, new: str) -> dict[str, str]:
    return {"path": f"{WORKSPACE}/{path}", "old_str": old, "new_str": new}


async def test_python_computes_and_its_output_streams(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str
) -> None:
    model.will_say(python("print(sum(range(10)))"), text("It is 45."))

    events = await ask(api, thread)

    live = [data["text"] for name, data, _ in events if name == "custom" and data["type"] == "tool_output"]
    assert results(events) == ["45\n"]
    assert "".join(live) == "45\n"
    assert "45" in str(model.requests[1].messages[-1]["content"])


@pytest.mark.parametrize("code", ["print('secret')", "import os; os.system('shutdown')"])
async def test_rules_about_python_and_about_the_shell_hold_for_programs(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str, code: str
) -> None:
    model.will_say(python(code), text("I may not."))

    (result,) = results(await ask(api, thread))

    assert result.startswith("Error: python was not run: rule ")


async def test_without_a_shell_python_is_not_offered_and_does_not_run(
    tmp_path: Path, model: ScriptedModel, thread: str
) -> None:
    model.will_say(python("print(1)"), text("No."))

    with running_gateway(tmp_path, model.base_url) as gateway:
        async with gateway.client() as api:
            (result,) = results(await ask(api, thread))

    assert not {"bash", "python"} & offered(model)
    assert "edit_files" in offered(model)
    assert result != "1\n"
    assert "allow_host_bash" in result


async def test_edits_need_the_files_to_be_read_and_are_made_together(
    api: httpx.AsyncClient, model: ScriptedModel, gateway: Gateway, thread: str
) -> None:
    assert gateway.deerflow is not None
    folders = gateway.deerflow.folders("default", thread)
    folders.create()
    for name in ("a.txt", "b.txt"):
        (folders.workspace / name).write_text("old\n")
    both = call(
        "edit_files", description="e", edits=[replacing("a.txt", "old", "1"), replacing("b.txt", "old", "2")]
    )
    read = [call("read_file", description="r", path=f"{WORKSPACE}/{name}") for name in ("a.txt", "b.txt")]
    patch = f"--- {WORKSPACE}/a.txt\n+++ {WORKSPACE}/a.txt\n@@ -1 +1,2 @@\n 1\n+more\n"
    model.will_say(
        read[0], both, read[1], both, call("edit_files", description="p", patch=patch), text("Done.")
    )

    events = await ask(api, thread)

    _, refused, _, changed, patched = results(events)
    assert "b.txt exists and you have not read it" in refused
    assert changed.startswith(f"Changed {WORKSPACE}/a.txt")
    assert patched == f"Changed {WORKSPACE}/a.txt (now 7 bytes)."
    assert (folders.workspace / "a.txt").read_text() == "1\nmore\n"
    assert (folders.workspace / "b.txt").read_text() == "2\n"


async def test_a_file_that_changed_in_between_is_not_edited(
    api: httpx.AsyncClient, model: ScriptedModel, gateway: Gateway, thread: str
) -> None:
    assert gateway.deerflow is not None
    folders = gateway.deerflow.folders("default", thread)
    folders.create()
    (folders.workspace / "a.txt").write_text("old\n")
    edit = call("edit_files", description="e", edits=[replacing("a.txt", "old", "1")])
    model.will_say(
        calls(call("read_file", description="r", path=f"{WORKSPACE}/a.txt")),
        call("bash", description="b", command="echo old again > a.txt"),
        edit,
        text("Done."),
    )

    events = await ask(api, thread)

    assert "has changed since you last read" in results(events)[-1]
    assert (folders.workspace / "a.txt").read_text() == "old again\n"
