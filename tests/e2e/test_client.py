"""DeerFlow inside a program: the same shapes as over HTTP, sync and async."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.gateway import parse_sse, running_gateway, write_config
from support.model_server import ScriptedModel, call, status, text
from support.skill_archives import matter
from support.waiting import eventually

from deerflow import AsyncDeerFlowClient, DeerFlowClient, DeerFlowError
from deerflow.client import RunFailedError, answer_of, text_of
from deerflow.errors import InvalidInputError, NotFoundError

REPORT = "/mnt/user-data/outputs/report.md"
LISTED = [
    *("thread_id", "status", "created_at", "updated_at", "state_updated_at"),
    *("metadata", "values.title", "interrupts", "waits_for_answer", "error"),
]
"""What a list says of a thread; with nothing selected it reads their states too."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEER_FLOW_HOME", str(tmp_path / ".deer-flow"))
    return tmp_path


@pytest.fixture
def config(home: Path, model: ScriptedModel) -> Path:
    return write_config(home, model.base_url)


@pytest.fixture
def client(config: Path) -> Iterator[DeerFlowClient]:
    with DeerFlowClient(config) as client:
        yield client


def test_a_question_is_answered_and_remembered(client: DeerFlowClient, model: ScriptedModel) -> None:
    model.will_say(text("Hello Ann."), text("You are Ann."))

    first = client.chat("I am Ann.", thread_id="t1")
    second = client.chat("Who am I?", thread_id="t1")

    assert (first, second) == ("Hello Ann.", "You are Ann.")
    sent = [(m["role"], m["content"]) for m in model.requests[1].messages]
    assert sent.index(("user", "I am Ann.")) < sent.index(("assistant", "Hello Ann."))
    assert [run["status"] for run in client.runs("t1")] == ["success", "success"]
    assert [entry["thread_id"] for entry in client.threads()] == ["t1"]


def test_files_go_in_and_artifacts_come_out(
    client: DeerFlowClient, model: ScriptedModel, tmp_path: Path
) -> None:
    (tmp_path / "notes.md").write_text("the answer is 42\n")
    model.will_say(
        call("read_file", description="read", path="/mnt/user-data/uploads/notes.md"),
        call("write_file", description="write", path=REPORT, content="It is 42.\n"),
        call("present_files", filepaths=[REPORT]),
        text("See the report."),
    )

    events = list(client.stream("What is the answer?", thread_id="t1", files=[tmp_path / "notes.md"]))

    assert (events[0].event, events[-1].event) == ("metadata", "end")
    assert any("the answer is 42" in str(event.data) for event in events if event.event == "updates")
    assert client.artifact("t1", REPORT) == b"It is 42.\n"
    assert client.state("t1")["values"]["artifacts"] == [REPORT]
    assert [upload["filename"] for upload in client.uploads("t1")] == ["notes.md"]
    client.delete_upload("t1", "notes.md")
    assert client.uploads("t1") == []


def test_leaving_the_stream_stops_the_run(client: DeerFlowClient, model: ScriptedModel) -> None:
    model.will_say(text("slow " * 500, delay=0.05), text("again"))

    for event in client.stream("go", thread_id="t1"):
        if event.event == "messages":
            break

    model.wait_for(lambda m: m.aborted == 1)
    assert [run["status"] for run in client.runs("t1")] == ["interrupted"]
    assert client.chat("still there?", thread_id="t1") == "again"


def test_a_run_that_fails_raises_with_its_own_words(client: DeerFlowClient, model: ScriptedModel) -> None:
    model.will_say(status(400, message="no such model"), status(400, message="still none"), text("fine"))

    with pytest.raises(RunFailedError, match="no such model"):
        client.chat("go", thread_id="t1")
    kinds = [event.event for event in client.stream("go", thread_id="t1")]
    answer = client.chat("go", thread_id="t1")

    assert (kinds[-2:], answer) == (["error", "end"], "fine")
    assert [run["status"] for run in client.runs("t1")] == ["success", "error", "error"]


@pytest.mark.parametrize("thread", ["../../etc", "", "a/b", "x" * 65])
def test_threads_that_cannot_be_touch_nothing(client: DeerFlowClient, home: Path, thread: str) -> None:
    before = sorted(path for path in home.rglob("*") if path.is_dir())

    for ask in (client.state, client.runs, client.uploads, client.delete_thread):
        with pytest.raises(NotFoundError):
            ask(thread)
    with pytest.raises(NotFoundError):
        client.artifact(thread, REPORT)
    if thread:  # none at all is a wish for a new one
        with pytest.raises(InvalidInputError):
            client.chat("hi", thread_id=thread)
        with pytest.raises(InvalidInputError):
            client.upload(thread, [])

    assert sorted(path for path in home.rglob("*") if path.is_dir()) == before


def test_mistakes_of_the_caller_are_named(client: DeerFlowClient, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="flavour"):
        client.chat("hi", flavour="sweet")
    with pytest.raises(InvalidInputError, match="nope"):
        client.chat("hi", model_name="nope")
    with pytest.raises(InvalidInputError, match=r"missing\.txt"):
        client.upload("t1", [tmp_path / "missing.txt"])
    with pytest.raises(DeerFlowError, match="open already"):
        client.__enter__()


def test_a_closed_client_says_so_and_can_be_opened_again(config: Path, model: ScriptedModel) -> None:
    model.will_say(text("one"), text("two"))
    client = DeerFlowClient(config)
    with pytest.raises(DeerFlowError, match="closed"):
        client.models()

    with client:
        client.chat("hi", thread_id="t1")
    with pytest.raises(DeerFlowError, match="closed"):
        next(client.stream("hi"))
    with client:
        client.chat("hi", thread_id="t1")
    with DeerFlowClient(config) as another:
        said = [m["content"] for m in another.state("t1")["values"]["messages"] if m["type"] == "ai"]

    assert said == ["one", "two"]


def test_a_client_that_cannot_open_leaves_nothing_running(home: Path) -> None:
    (home / "config.yaml").write_text("sandbox: {use: 7}\n")
    before = set(threading.enumerate())

    with pytest.raises(DeerFlowError, match="sandbox"), DeerFlowClient(home / "config.yaml"):
        pass

    eventually(lambda: set(threading.enumerate()) <= before)


async def test_the_shapes_are_those_of_http(home: Path, model: ScriptedModel, config: Path) -> None:
    model.will_say(call("write_file", description="w", path=REPORT, content="x"), text("done"))
    with running_gateway(home, model.base_url) as gateway:
        async with AsyncDeerFlowClient.open(config) as client, gateway.client() as api:
            (home / "a b.txt").write_text("x")
            uploaded = await client.upload("t1", [home / "a b.txt"])
            events = [event async for event in client.stream("go", thread_id="t1")]
            await client.upload("t2", [home / "a b.txt"])

            run_id = events[0].data["run_id"]
            modes = {"stream_mode": "values,messages-tuple,updates,custom"}
            stream = await api.get(f"/threads/t1/runs/{run_id}/stream", params=modes)
            over_http = {
                "models": (await api.get("/models")).json()["models"],
                "threads": (await api.post("/threads/search", json={"select": LISTED})).json(),
                "runs": (await api.get("/threads/t1/runs")).json(),
                "state": (await api.get("/threads/t1/state")).json(),
                "empty": (await api.get("/threads/t2/state")).json(),
                "uploads": (await api.get("/threads/t1/uploads/list")).json()["files"],
                "artifact": (await api.get(f"/threads/t1/artifacts{REPORT}")).content,
            }
            embedded = {
                "models": await client.models(),
                "threads": await client.threads(),
                "runs": await client.runs("t1"),
                "state": await client.state("t1"),
                "empty": await client.state("t2"),
                "uploads": await client.uploads("t1"),
                "artifact": await client.artifact("t1", REPORT),
            }

    assert embedded == over_http
    assert [(event.event, event.data, event.id) for event in events] == parse_sse(stream.text)
    assert uploaded == over_http["uploads"]


async def test_the_async_client_stops_and_deletes(config: Path, model: ScriptedModel) -> None:
    model.will_say(text("slow " * 500, delay=0.05), text("quick"))
    async with AsyncDeerFlowClient.open(config) as client:
        stream = client.stream("go", thread_id="t1")
        async for event in stream:
            if event.event == "messages":
                break
        await stream.aclose()
        stopped = (await client.runs("t1"))[0]["status"]
        asked = asyncio.create_task(client.chat("quick one", thread_id="t2"))
        answer = await asked
        await client.delete_thread("t1")
        left = [entry["thread_id"] for entry in await client.threads()]

    assert (stopped, answer, left) == ("interrupted", "quick", ["t2"])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("plain", "plain"),
        ([{"type": "text", "text": "a"}, {"type": "image_url"}, "b"], "ab"),
        (None, ""),
        ([], ""),
    ],
)
def test_the_text_of_an_answer_is_found_in_every_form(content: Any, expected: str) -> None:
    messages = [
        {"type": "ai", "content": "old"},
        {"type": "ai", "content": content},
        {"type": "tool", "content": "t"},
    ]

    assert text_of(content) == expected
    assert answer_of({"messages": messages}) == expected
    assert answer_of({}) == ""


def test_a_question_of_the_agent_is_what_chat_returns(client: DeerFlowClient, model: ScriptedModel) -> None:
    asked = {"question": "Which form?", "clarification_type": "approach_choice", "options": ["A", "B"]}
    model.will_say(call("ask_clarification", **asked), text("B, then."))

    question = client.chat("Summarise it.", thread_id="t1")
    answer = client.chat("B", thread_id="t1")

    assert question == "Which form?\n\n1. A\n2. B"
    assert answer == "B, then."


def test_skills_are_installed_switched_shared_and_restored(client: DeerFlowClient, home: Path) -> None:
    folder = home / "work/tidy-notes"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(matter("tidy-notes"))

    installed = client.install_skill(folder)
    off = client.disable_skill("tidy-notes")
    on = client.enable_skill("tidy-notes")
    (home / "x.skill").write_bytes(client.export_skill("tidy-notes"))
    client.delete_skill("tidy-notes")
    left = client.skills()
    client.rollback_skill("tidy-notes", 1)
    again = client.install_skill(home / "x.skill", update=True)

    assert installed["message"] == "Skill 'tidy-notes' is installed"
    assert (off["enabled"], on["enabled"]) == (False, True)
    assert "tidy-notes" not in [skill["name"] for skill in left]
    assert "# Tidy" in client.skill("tidy-notes")["content"]
    assert again["skill_name"] == "tidy-notes"
    assert [each["action"] for each in client.skill_history("tidy-notes")][:3] == [
        "install",
        "delete",
        "rollback",
    ]
    assert client.skill_diff("tidy-notes", 1, 3) == ""
    assert client.search_skills("notes") == {"skills": [], "problems": [], "catalogues": []}
    with pytest.raises(NotFoundError, match=r"skill of a catalogue 'nobody' not found; skills\.catalogues"):
        client.install_skill("nobody")
