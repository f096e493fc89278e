"""The graph that `langgraph.json` names works alone, and clients may use its path as the graph's name."""

import json
from importlib import import_module
from pathlib import Path

import pytest
from langchain_core.messages import HumanMessage
from support.gateway import running_gateway, write_config
from support.model_server import ScriptedModel, call, text

FILE = Path(__file__).parents[2] / "langgraph.json"


async def test_the_graph_of_the_file_takes_a_turn(
    tmp_path: Path, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.will_say(
        call("ls", path="/mnt/user-data/workspace"), text("Nothing there."), text("Still nothing.")
    )
    write_config(tmp_path, model.base_url)
    monkeypatch.chdir(tmp_path)
    module, name = json.loads(FILE.read_text("utf-8"))["graphs"]["lead_agent"].split(":")
    config = {"configurable": {"thread_id": "t1"}}

    async with getattr(import_module(module), name)(config) as graph:
        first = await graph.ainvoke({"messages": [HumanMessage("What is there?")]}, config)
        second = await graph.ainvoke({"messages": [HumanMessage("And now?")]}, config)

    assert [message.type for message in first["messages"]] == ["human", "ai", "tool", "ai"]
    assert first["messages"][-1].text == "Nothing there."
    assert second["messages"][-1].text == "Still nothing."
    assert "What is there?" in str(model.requests[-1].body["messages"])


async def test_clients_may_name_the_graph_by_its_path(tmp_path: Path, model: ScriptedModel) -> None:
    model.will_say(text("Hello."))
    path = json.loads(FILE.read_text("utf-8"))["graphs"]["lead_agent"]
    with running_gateway(tmp_path, model.base_url) as gateway:
        async with gateway.client() as client:
            body = {"assistant_id": path, "input": {"messages": [{"type": "human", "content": "Hi."}]}}
            answer = await client.post("langgraph/runs/wait", json=body)
            made = await client.post("langgraph/assistants", json={"graph_id": path})

    assert answer.json()["messages"][-1]["content"] == "Hello."
    assert made.json()["graph_id"] == "lead_agent"
