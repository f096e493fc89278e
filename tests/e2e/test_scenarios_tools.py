"""Each tool over HTTP: what was offered, what the model read of its result, and what the client saw."""

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.gateway import Gateway, model_entry, running_gateway
from support.model_server import Reply, Request, ScriptedModel, call, calls, text
from support.scene import WORKSPACE, Scene

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
OUTPUTS = "/mnt/user-data/outputs"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, server: ScriptedModel) -> Iterator[Gateway]:
    entry = model_entry(server.base_url, supports_vision=True)
    home = tmp_path_factory.mktemp("home")
    with running_gateway(home, None, models=[entry], sandbox={"use": "isolated"}) as running:
        yield running


@pytest.fixture
def scene(gateway: Gateway, server: ScriptedModel) -> Scene:
    server.reset()
    return Scene(gateway, server)


@dataclass(frozen=True)
class Step:
    """One call of a tool and a part of what comes back."""

    tool: str
    args: dict[str, Any]
    result: str
    status: str = "success"
    files: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    """What is in the workspace afterwards."""


NOTES = {"notes.md": "# Deer\nThey sleep at noon.\n"}
STEPS = [
    Step("ls", {"path": WORKSPACE}, f"{WORKSPACE}/notes.md", files=NOTES),
    Step("ls", {"path": "/mnt/nowhere"}, "/mnt/nowhere", "error"),
    Step("read_file", {"path": f"{WORKSPACE}/notes.md"}, "They sleep at noon.", files=NOTES),
    Step("read_file", {"path": f"{WORKSPACE}/none.md"}, "does not exist", "error"),
    Step("glob", {"path": WORKSPACE, "pattern": "**/*.md"}, "notes.md", files=NOTES),
    Step("glob", {"path": "/etc", "pattern": "*"}, "/etc", "error"),
    Step("grep", {"path": WORKSPACE, "pattern": "sleep at"}, "They sleep at noon.", files=NOTES),
    Step(
        "search_files", {"query": "When do deer sleep?", "paths": [WORKSPACE]}, "2: They sleep", files=NOTES
    ),
    Step("search_files", {"query": "x", "paths": ["/etc"]}, "/etc"),
    Step("grep", {"path": WORKSPACE, "pattern": "(("}, "(", "error", files=NOTES),
    Step(
        "write_file",
        {"path": f"{WORKSPACE}/new.txt", "content": "fresh"},
        "Wrote 5 bytes",
        left={"new.txt": "fresh"},
    ),
    Step("write_file", {"path": "/etc/new.txt", "content": "x"}, "/etc/new.txt", "error"),
    Step("str_replace", {"path": f"{WORKSPACE}/none", "old_str": "a", "new_str": "b"}, "none", "error"),
    Step("bash", {"command": "echo $((6 * 7)); pwd"}, f"42\n{WORKSPACE}"),
    Step("bash", {"command": "echo oh >&2; exit 3"}, "oh\nExit code: 3", "error"),
    Step("python", {"code": "print(6 * 7)"}, "42"),
    Step("python", {"code": "1 / 0"}, "ZeroDivisionError", "error"),
    Step("present_files", {"filepaths": [f"{OUTPUTS}/none.md"]}, "none.md", "error"),
    Step("view_image", {"image_path": f"{WORKSPACE}/notes.md"}, ".png", "error", files=NOTES),
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.tool}-{step.status}-{step.result[:20]}")
async def test_a_call_comes_back_to_the_model_framed_and_to_the_client_plain(
    scene: Scene, step: Step
) -> None:
    for name, content in step.files.items():
        scene.put(name, content)
    scene.model.will_say(call(step.tool, description="try", **step.args), text("I see."))

    seen = await scene.ask()

    assert step.tool in scene.model.requests[0].tools
    (shown,) = scene.shown("tool")
    assert shown.startswith("<tool-result>\n")
    assert shown.endswith("\n</tool-result>")
    assert step.result in shown
    (result,) = seen.results
    assert (result["name"], result["status"]) == (step.tool, step.status)
    assert step.result in result["content"]
    assert seen.answer == "I see."
    for name, content in step.left.items():
        assert scene.put("other", "").with_name(name).read_text() == content


async def test_str_replace_edits_a_file_that_was_read(scene: Scene) -> None:
    file = scene.put("notes.md", "They sleep at noon.")
    path = f"{WORKSPACE}/notes.md"
    scene.model.will_say(
        call("read_file", description="r", path=path),
        call("str_replace", description="s", path=path, old_str="noon", new_str="night"),
        text("Done."),
    )

    seen = await scene.ask()

    assert file.read_text() == "They sleep at night."
    assert seen.results[-1]["status"] == "success"
    assert seen.results[-1]["content"] in scene.shown("tool")[-1]


async def test_a_web_tool_that_is_not_configured_says_how_to_add_it(scene: Scene) -> None:
    scene.model.will_say(call("web_search", query="deer"), text("I cannot search."))

    seen = await scene.ask()

    assert "web_search" not in scene.model.requests[0].tools
    assert seen.results[0]["status"] == "error"
    assert "not configured on this server" in seen.results[0]["content"]
    assert "docs/howto/web.md" in scene.shown("tool")[0]


async def test_present_files_shows_them_to_the_client(scene: Scene) -> None:
    scene.put("report.md", "# Report", "outputs")
    scene.model.will_say(call("present_files", filepaths=[f"{OUTPUTS}/report.md"]), text("Here."))

    seen = await scene.ask()

    assert seen.values["artifacts"] == [f"{OUTPUTS}/report.md"]
    assert "report.md" in scene.shown("tool")[0]
    fetched = await scene.request("GET", "/artifacts/mnt/user-data/outputs/report.md")
    assert (fetched.status_code, fetched.text) == (200, "# Report")


async def test_an_image_is_shown_to_the_model_once_and_kept_out_of_the_conversation(scene: Scene) -> None:
    scene.put("deer.png", PIXEL)
    scene.model.will_say(
        call("view_image", image_path=f"{WORKSPACE}/deer.png"),
        call("ls", description="l", path=WORKSPACE),
        text("A deer."),
    )

    seen = await scene.ask()

    looked, after = scene.model.requests[1:3]
    (shown,) = [part for part in looked.messages[-1]["content"] if part["type"] == "image_url"]
    assert shown["image_url"]["url"] == f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
    assert "image_url" not in json.dumps(after.messages)
    assert seen.values["viewed_images"] == {}
    assert [message["type"] for message in seen.messages] == ["human", "ai", "tool", "ai", "tool", "ai"]


async def test_a_question_ends_the_turn_alone_and_the_answer_goes_on(scene: Scene) -> None:
    question = call(
        "ask_clarification",
        question="Which herd?",
        clarification_type="ambiguous_requirement",
        options=["north", "south"],
    )
    beside = call("write_file", description="w", path=f"{WORKSPACE}/guess.txt", content="north")
    scene.model.will_say(calls(beside, question), text("The south it is."))

    asked = await scene.ask("count them")
    went_on = await scene.ask("south")

    (result,) = asked.results
    assert result["artifact"]["human_input"]["input_mode"] == "choice_with_other"
    assert [option["label"] for option in result["artifact"]["human_input"]["options"]] == ["north", "south"]
    assert len(scene.model.requests) == 2
    assert not scene.put("x", "").with_name("guess.txt").exists()
    assert "Which herd?" in scene.shown("tool")[0]
    assert scene.model.requests[-1].asked.endswith("south")
    assert went_on.answer == "The south it is."


def first_call(request: Request) -> str:
    """Return the id of the first call that the model made in a conversation."""
    made = next(message["tool_calls"] for message in request.messages if message.get("tool_calls"))
    return str(made[0]["id"])


def background(prompt: str) -> Reply:
    return call("task", description="count", prompt=prompt, subagent_type="general-purpose", background=True)


async def test_background_tasks_are_seen_steered_and_read(scene: Scene) -> None:
    at_work, gate = threading.Event(), threading.Event()

    def look(request: Request) -> Reply:
        at_work.set()
        return call("ls", description="l", path=WORKSPACE).held(gate)

    scene.model.on("Count the deer.", look, text("never said"))
    scene.model.on("Only the young ones", text("Three young deer."))

    def answer(request: Request) -> Reply:
        match request.step:
            case 0:
                return background("Count the deer.")
            case 1:
                return call("task_status").held(at_work)
            case 2:
                return call("task_message", task_id=first_call(request), message="Only the young ones")
            case 3:
                gate.set()
                return call("task_result", task_id=first_call(request))
        return text("There are three.")

    scene.model.on(lambda request: "You are DeerFlow" in request.system, answer)

    seen = await scene.ask("how many?", subagent_enabled=True)

    started, stands, told, found = (result["content"] for result in seen.results)
    lead = [request for request in scene.model.requests if "You are DeerFlow" in request.system]
    assert "task_status" not in lead[0].tools
    assert {"task_status", "task_result", "task_message", "task_cancel"} <= set(lead[1].tools)
    assert "running" in stands
    assert "before its next step" in told
    assert "Three young deer." in found
    assert "Three young deer." in scene.shown("tool", -1)[-1]
    assert started.startswith("Task started in the background")
    assert [event["type"] for event in seen.of_kind("custom")][-1] == "task_completed"
    assert seen.answer == "There are three."


async def test_a_background_task_is_stopped_by_its_lead(scene: Scene) -> None:
    scene.model.on("Count the deer.", text("One, two").held(threading.Event(), after=1))

    def answer(request: Request) -> Reply:
        match request.step:
            case 0:
                return background("Count the deer.")
            case 1:
                return call("task_cancel", task_id=first_call(request))
        return text("Stopped.")

    scene.model.on(lambda request: "You are DeerFlow" in request.system, answer)

    seen = await scene.ask("how many?", subagent_enabled=True)

    assert seen.results[-1]["content"].startswith("Task cancelled by user.")
    assert "Task cancelled by user." in scene.shown("tool")[-1]
    assert seen.custom("task_cancelled")
    assert seen.answer == "Stopped."


async def test_members_of_a_team_share_what_they_find(scene: Scene) -> None:
    steps = [
        {"id": "money", "role": "financial_analyst", "task": "the money of it"},
        {"id": "law", "role": "compliance_checker", "task": "the law of it", "needs": ["money"]},
    ]
    share = call("share_finding", subject="Acme", predicate="earns", object="5 M", source="report.pdf")

    def says(words: str) -> Any:
        return lambda request: words in request.system

    scene.model.on(says("You plan the work of a team"), text(json.dumps({"steps": steps})))
    scene.model.on(says("You are a financial analyst"), share, text("It earns 5 M."))
    scene.model.on(says("You are a compliance checker"), call("team_findings", about="Acme"), text("Fine."))
    scene.model.on(says("You make one answer of the reports"), text("Buy it."))
    scene.model.on(says("You are DeerFlow"), call("run_team", goal="Shall we buy Acme?"), text("We buy."))

    seen = await scene.ask("Shall we?", subagent_enabled=True)

    checker = [r for r in scene.model.requests if "You are a compliance checker" in r.system][-1]
    assert "5 M" in checker.last_message
    (finding,) = seen.custom("team_finding")
    assert (finding["subject"], finding["object"]) == ("Acme", "5 M")
    assert "Buy it." in seen.results[-1]["content"]
    assert seen.answer == "We buy."


async def test_many_calls_at_once_each_get_their_own_result(scene: Scene) -> None:
    made = [call("bash", description="b", command=f"echo number {number}") for number in range(5)]
    scene.model.will_say(calls(*made), text("Five."))

    seen = await asyncio.wait_for(scene.ask(), 60)

    assert [result["content"] for result in seen.results] == [f"number {number}\n" for number in range(5)]
    assert [f"number {number}" in shown for number, shown in enumerate(scene.shown("tool"))] == [True] * 5
