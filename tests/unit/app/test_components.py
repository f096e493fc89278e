"""What follows the settings, and what is left of it when they change."""

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gateway import model_entry, write_config
from support.model_server import ScriptedModel, text

from deerflow.app import DeerFlow
from deerflow.config import SettingsSource
from deerflow.domain import RunOptions, RunRequest

PROVIDER = """\
import threading

from langchain_openai import ChatOpenAI

LOADED_IN = threading.get_ident()


class Chat(ChatOpenAI):
    pass
"""


@pytest.fixture
def source(tmp_path: Path, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch) -> Iterator[SettingsSource]:
    """Settings with models of two packages that nobody has imported."""
    names = ("provider_in_use", "provider_beside")
    for name in names:
        (tmp_path / f"{name}.py").write_text(PROVIDER)
    monkeypatch.syspath_prepend(str(tmp_path))
    models = [model_entry(model.base_url, name, use=f"{name}:Chat") for name in names]
    env = {"DEER_FLOW_HOME": str(tmp_path / "home")}
    yield SettingsSource(write_config(tmp_path, None, models=models), env=env, cwd=tmp_path)
    for name in names:
        sys.modules.pop(name, None)


async def test_a_run_imports_its_model_beside_the_event_loop(
    source: SettingsSource, model: ScriptedModel
) -> None:
    model.will_say(text("Hello."))
    async with DeerFlow.open(source) as deerflow:
        assert "provider_in_use" not in sys.modules
        run = await deerflow.start_run(
            RunRequest("t1", input={"messages": [{"type": "human", "content": "Hi."}]})
        )
        async for _ in deerflow.runs.subscribe(run.id):
            pass

    assert len(model.requests) == 1
    loaded_in = sys.modules["provider_in_use"].LOADED_IN
    assert loaded_in != threading.get_ident()
    assert "provider_beside" not in sys.modules, "a single run loads no more than it needs"


async def test_agents_of_earlier_settings_are_let_go(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("sandbox: {use: local}\n")
    env = {"DEER_FLOW_HOME": str(tmp_path / "home")}
    async with DeerFlow.open(SettingsSource(config, env=env, cwd=tmp_path)) as deerflow:
        earlier = weakref.ref(deerflow._components.now.agents)

        config.write_text("sandbox: {use: local}\ntitle: {enabled: false}\n")
        await deerflow.refresh()
        gc.collect()

        assert not deerflow.settings.title.enabled
        assert earlier() is None


@pytest.mark.parametrize(
    ("setting", "asked", "expected"),
    [
        ("", None, False),
        ("subagents: {enabled: true}\n", None, True),
        ("subagents: {enabled: true}\n", False, False),
    ],
)
async def test_delegation_is_on_where_the_settings_or_the_request_say_so(
    tmp_path: Path, model: ScriptedModel, setting: str, asked: bool | None, expected: bool
) -> None:
    model.will_say(text("Hello."))
    config = write_config(tmp_path, model.base_url)
    config.write_text(config.read_text() + setting)
    env = {"DEER_FLOW_HOME": str(tmp_path / "home")}
    async with DeerFlow.open(SettingsSource(config, env=env, cwd=tmp_path)) as deerflow:
        request = RunRequest(
            "t1",
            input={"messages": [{"type": "human", "content": "Hi."}]},
            options=RunOptions(subagent_enabled=asked),
        )
        run = await deerflow.start_run(request)
        async for _ in deerflow.runs.subscribe(run.id):
            pass

    (sent,) = model.requests
    offered = {tool["function"]["name"] for tool in sent.body["tools"]}
    assert ("task" in offered) is expected
    # `write_config` has no shell: the local sandbox without `allow_host_bash`
    assert "- bash: " not in str(sent.body["messages"][0]["content"])
    assert ("- general-purpose: " in str(sent.body["messages"][0]["content"])) is expected
