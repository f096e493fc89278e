"""Middlewares over HTTP that the other files leave out: what the model saw, and what the client saw."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.gateway import Gateway, model_entry, write_config
from support.model_server import ScriptedModel, call, calls, raw_call, text
from support.scene import WORKSPACE, Scene
from support.shared import shared_gateway

EXPLODE = {"name": "explode", "group": "test", "use": "support.faulty_tools:explode"}
LS = {"name": "ls", "group": "file:read", "use": "deerflow.tools.files:ls_tool"}


gateway = shared_gateway()


@pytest.fixture
def scene(gateway: Gateway, server: ScriptedModel) -> Scene:
    server.reset()
    return Scene(gateway, server)


@pytest.fixture
def configured(gateway: Gateway, server: ScriptedModel) -> Iterator[Any]:
    """Changes the settings for one test; they count from its next run."""

    def change(**sections: Any) -> None:
        write_config(gateway.home, server.base_url, **sections)

    yield change
    change()


async def test_a_turn_starts_with_folders_and_a_title(scene: Scene) -> None:
    scene.model.will_say(call("ls", description="l", path="/mnt/user-data"), text("Empty."))

    seen = await scene.ask("What do **deer** eat in winter, when everything is covered by snow?")

    shown = scene.shown("tool")[0]
    assert all(f"/mnt/user-data/{name}/" in shown for name in ("workspace", "uploads", "outputs"))
    assert seen.values["title"].startswith("What do deer eat in winter")
    listed = (await scene.request("GET", "")).json()
    assert listed["values"]["title"] == seen.values["title"]


async def test_a_model_of_its_own_writes_the_title_and_nobody_hears_it(scene: Scene, configured: Any) -> None:
    configured(title={"model_name": "scripted"})
    scene.model.on(lambda request: "title" in request.messages[-1]["content"], text("Winter food of deer"))
    scene.model.on("What do deer eat?", text("Bark."))

    seen = await scene.ask("What do deer eat?")

    assert seen.values["title"] == "Winter food of deer"
    assert len(scene.model.requests) == 2
    streamed = "".join(data[0]["content"] for data in seen.of_kind("messages") if data[0]["content"])
    assert streamed == "Bark."


async def test_uploads_are_named_to_the_model_with_the_message_they_came_with(scene: Scene) -> None:
    answer = await scene.request("POST", "/uploads", files={"files": ("herd.csv", b"name,age\nHirsch,4\n")})
    assert answer.status_code == 200, answer.text
    scene.model.will_say(text("I see it."), text("Still there."))

    first = await scene.ask("look at it")
    second = await scene.ask("and now?")

    shown = scene.shown("user", 0)[-1]
    assert shown.startswith("<uploaded_files>\n- /mnt/user-data/uploads/herd.csv (18 B)\nOnly names")
    assert shown.endswith("look at it")
    assert scene.shown("user", 1)[-2:] == [shown, "and now?"]
    assert first.messages[0]["content"] == "look at it"
    assert [message["content"] for message in second.messages[::2]] == ["look at it", "and now?"]


async def test_a_call_without_a_result_is_answered_for_the_model_only(scene: Scene) -> None:
    scene.model.will_say(text("Hello."), text("Again."))
    await scene.ask("hi")
    cut = {"type": "ai", "content": "", "tool_calls": [{"name": "ls", "args": {"path": "/"}, "id": "c1"}]}
    changed = await scene.request("POST", "/state", json={"values": {"messages": [cut]}, "as_node": "model"})
    assert changed.status_code == 200, changed.text

    seen = await scene.ask("go on")

    asked = scene.model.requests[-1].messages
    place = next(index for index, message in enumerate(asked) if message.get("tool_calls"))
    assert asked[place + 1]["role"] == "tool"
    assert "interrupted and has no result" in asked[place + 1]["content"]
    assert seen.results == []
    assert seen.answer == "Again."


async def test_a_tool_that_breaks_is_news_for_the_model_and_not_the_end(
    scene: Scene, configured: Any
) -> None:
    configured(tools=[LS, EXPLODE])
    scene.model.will_say(call("explode", word="noon"), text("I go on without it."))

    seen = await scene.ask()

    (result,) = seen.results
    assert result["status"] == "error"
    assert "explode failed (RuntimeError: boom at noon)" in result["content"]
    assert "boom at noon" in scene.shown("tool")[0]
    assert seen.answer == "I go on without it."
    assert seen.of_kind("error") == []


async def test_only_what_this_run_can_use_is_offered(scene: Scene) -> None:
    scene.model.will_say(text("one"), text("two"), call("bash", description="b", command="id"), text("no"))

    await scene.ask()
    await scene.ask(disable_clarification=True)
    seen = await scene.ask()

    first, second, *_ = (set(request.tools) for request in scene.model.requests)
    assert {"bash", "python"} & first == set(), "the local sandbox takes no commands"
    assert first - second == {"ask_clarification"}
    assert seen.results[0]["status"] == "error"
    assert "allow_host_bash" in scene.shown("tool")[-1]


@pytest.mark.parametrize("transport", ["lean", "sdk"])
@pytest.mark.parametrize("content", [': "broken o', ": broken}", ': "x"}}', ""], ids=repr)
async def test_arguments_that_are_no_json_are_sent_back_and_nothing_runs(
    scene: Scene, configured: Any, content: str, transport: str
) -> None:
    configured(models=[model_entry(scene.model.base_url, transport=transport)])
    odd = raw_call("write_file", f'{{"path": "{WORKSPACE}/half.txt", "content"{content}')
    whole = call("write_file", description="w", path=f"{WORKSPACE}/whole.txt", content="all of it")
    scene.model.will_say(calls(whole, odd), text("Sorry."))

    seen = await scene.ask()

    assert ["not valid JSON" in shown for shown in scene.shown("tool")] == [False, True]
    assert [result["status"] for result in seen.results] == ["success", "error"]
    assert scene.put("x", "").with_name("whole.txt").read_text() == "all of it"
    assert not scene.put("x", "").with_name("half.txt").exists()
    assert seen.answer == "Sorry."


async def test_tools_are_described_whole_and_the_same_way_every_time(scene: Scene) -> None:
    scene.model.will_say(call("ls", description="l", path=WORKSPACE), text("Done."), text("Again."))

    await scene.ask("one")
    seen = await scene.ask("two")

    described = [json.dumps(request.body["tools"]) for request in scene.model.requests]
    assert len(set(described)) == 1
    by_name = {tool["function"]["name"]: tool["function"] for tool in json.loads(described[0])}
    assert by_name["read_file"]["parameters"]["properties"]["path"]["description"]
    assert set(by_name["write_file"]["parameters"]["required"]) >= {"path", "content"}
    assert "runtime" not in described[0]
    assert seen.answer == "Again."


async def test_effects_that_the_settings_leave_out_are_gone_for_model_and_client(
    scene: Scene, configured: Any
) -> None:
    configured(middlewares={"off": ["clarification", "reminder", "result_labels"]})
    scene.model.will_say(call("ls", description="l", path=WORKSPACE), text("Done."))

    seen = await scene.ask("one")

    assert scene.shown("tool") == [seen.results[0]["content"]], "no frame around what came from outside"
    assert "Today is" not in json.dumps(scene.model.requests[0].messages)
    assert "ask_clarification" not in scene.model.requests[0].tools
