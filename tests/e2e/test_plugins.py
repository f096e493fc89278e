"""Middlewares and sub-agents of other packages take effect; a broken one costs only itself."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.gateway import parse_sse, running_gateway
from support.model_server import ScriptedModel, call, text

CODE = """
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import SystemMessage
from langchain_core.tools import tool

class Stamp(AgentMiddleware):
    mark = "STAMPED BY THE SETTING"

    async def awrap_model_call(self, request, handler):
        prompt = f"{request.system_message.content}\\n{self.mark}"
        return await handler(request.override(system_message=SystemMessage(prompt)))

class PackageStamp(Stamp):
    mark = "STAMPED BY THE PACKAGE"

@tool
def rhyme(word: str) -> str:
    "Return a rhyme."
    return f"{word} rhymes with deer"

class Poet:
    name = "poet"
    description = "Writes verse."
    prompt = "You are a poet."
    tools = [rhyme, "read_file"]
"""
BROKEN = "1 / 0\n"


@pytest.fixture
async def api(
    tmp_path: Path, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx.AsyncClient]:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_parts.py").write_text(CODE)
    (tmp_path / "broken_parts.py").write_text(BROKEN)
    about = tmp_path / "own_parts-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own-parts\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[deerflow.middlewares]\nstamp = own_parts:PackageStamp\nbroken = broken_parts:Gone\n"
    )
    extensions = {
        "middlewares": ["own_parts:Stamp", "broken_parts:Other"],
        "agents": ["own_parts:Poet", "own_parts:Stamp"],
    }
    with running_gateway(tmp_path, model.base_url, extensions=extensions) as gateway:
        async with gateway.client() as client:
            yield client


async def test_middlewares_and_agents_of_other_packages_take_effect(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    task: dict[str, Any] = {"description": "verse", "prompt": "One line.", "subagent_type": "poet"}
    model.will_say(
        call("task", **task), call("rhyme", word="beer"), text("Beer for the deer."), text("All done.")
    )
    body = {
        "input": {"messages": [{"type": "human", "content": "A verse, please."}]},
        "context": {"subagent_enabled": True},
        "stream_mode": ["values"],
    }

    response = await api.post("/threads/t1/runs/stream", json=body)

    messages = [data for kind, data, _ in parse_sse(response.text) if kind == "values"][-1]["messages"]
    assert messages[-1]["content"] == "All done."
    lead, poet, rhymed, _ = model.requests
    for request in (lead, poet):
        assert "STAMPED BY THE SETTING" in request.system
        assert "STAMPED BY THE PACKAGE" in request.system
    assert "- poet: Writes verse." in lead.system
    assert poet.system.startswith("You are a poet.")
    assert sorted(poet.tools) == ["read_file", "rhyme"]
    assert "rhyme" not in lead.tools
    assert "beer rhymes with deer" in rhymed.last_message

    health = (await api.get(api.base_url.join("/health"))).json()
    faults = [fault["key"] for fault in health["config"]["faults"]]
    assert {"extensions.middlewares[broken_parts:Other]", "extensions.agents[own_parts:Stamp]"} < set(faults)
    assert "plug-ins" in faults
