"""Tool arguments: whatever a model sends, it gets an answer, and the run goes on."""

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from fuzz.inputs import deep_values, examples, json_values, nested, texts
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, ToolMessage
from support.lead import Lead, scripted_models
from support.loop_watch import LoopWatch
from support.model_server import ScriptedModel, calls, raw_call, text

from deerflow.config import SandboxSettings
from deerflow.domain import new_id
from deerflow.sandbox import create_sandbox_provider
from deerflow.storage import CheckpointSaver
from deerflow.storage.sqlite.engine import SqliteEngine
from deerflow.tools.catalog import SANDBOX_TOOLS

PATHS = st.sampled_from(
    (
        "/mnt/user-data/workspace/a.txt",
        "/mnt/user-data/workspace",
        "/mnt/user-data/outputs/b",
        "a.txt",
        "/etc/passwd",
        "/mnt",
    )
)
VALUES = st.one_of(
    PATHS, texts, json_values, deep_values, st.integers(-3, 3), st.booleans(), st.just("\ud800")
)


@dataclass(frozen=True)
class Bench:
    """A lead agent in a real sandbox that has files but runs no commands, and the tools it is offered."""

    lead: Lead
    server: ScriptedModel
    parameters: dict[str, list[str]]

    async def messages(self, *made: tuple[str, str]) -> list[Any]:
        """Return the messages of a turn in which the model makes these calls, then says it is done."""
        self.server.reset()
        reply = calls(*(raw_call(name, arguments) for name, arguments in made))
        self.server.on(lambda request: request.asked == "go", reply, text("done"))
        self.server.on(lambda _: True, text("fine"))
        values = {"messages": [{"type": "human", "content": "go"}]}
        config = {"configurable": {"thread_id": new_id()}}
        result = await self.lead.agent.ainvoke(values, config, context=self.lead.context)
        return list(result["messages"])


@pytest.fixture
async def bench(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[Bench]:
    models = scripted_models(model, supports_vision=True)
    engine = await SqliteEngine.open(tmp_path / "checkpoints.db")
    lead = Lead(model, tmp_path / "t1", models=models, checkpointer=CheckpointSaver(engine))
    provider = create_sandbox_provider(SandboxSettings(use="local"))
    async with provider.acquire(lead.folders) as sandbox:
        lead.context = replace(lead.context, sandbox=sandbox)
        (lead.folders.workspace / "a.txt").write_text("one\ntwo\n")
        model.will_say(text("Hello."))
        await lead.ask("Hi")
        offered = [tool["function"] for tool in model.requests[-1].body["tools"]]
        parameters = {tool["name"]: sorted(tool["parameters"].get("properties", {})) for tool in offered}
        known = {tool.name: list(tool.args) for _, tool in SANDBOX_TOOLS}
        found = Bench(lead, model, {**known, **parameters})
        for name in found.parameters:  # what is made at first use is no answer to what is sent
            await found.messages((name, "{}"))
        yield found
    await provider.aclose()
    await models.aclose()
    await engine.aclose()


@examples(0.5)
@given(st.data())
async def test_every_call_gets_an_answer(bench: Bench, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(bench.parameters)), min_size=1, max_size=4))
    made = [(name, data.draw(arguments(bench.parameters[name]))) for name in names]

    async with LoopWatch(clock=time.thread_time):
        messages = await bench.messages(*made)

    asked = [call["id"] for one in messages if isinstance(one, AIMessage) for call in one.tool_calls]
    answered = {one.tool_call_id for one in messages if isinstance(one, ToolMessage)}
    assert answered.issuperset(asked), made
    assert isinstance(messages[-1], AIMessage | ToolMessage)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param("true", id="an answer that came whole was refused: its arguments are no object"),
        pytest.param(json.dumps({"path": nested(300, False)}), id="could not be stored: 300 levels"),
        pytest.param(json.dumps({"path": nested(900, True)}), id="900 levels"),
        pytest.param(json.dumps({"path": nested(251, False)}), id="251 levels, and those of the message"),
        pytest.param(json.dumps({"path": 2**64}), id="could not be stored: 65 bits"),
        pytest.param(json.dumps({"path": "\ud800"}), id="could not be stored: half a character"),
    ],
)
async def test_a_call_that_once_ended_the_run_gets_an_answer(bench: Bench, arguments: str) -> None:
    messages = await bench.messages(("ls", arguments))

    assert [one.status for one in messages if isinstance(one, ToolMessage)] == ["error"]
    assert messages[-1].text == "done"


def arguments(parameters: list[str]) -> st.SearchStrategy[str]:
    """Return arguments as models write them: objects of the tool's words, of others, or broken text."""
    keys = st.one_of(st.sampled_from(parameters), texts) if parameters else texts
    whole = st.fixed_dictionaries(dict.fromkeys(parameters, VALUES))
    some = st.dictionaries(keys, VALUES, max_size=6)
    return st.one_of(
        whole.map(_written),
        some.map(_written),
        json_values.map(_written),
        st.sampled_from(("", "{", '{"path": "a', "[" * 5000)),
    )


def _written(value: Any) -> str:
    return json.dumps(value, default=str)
