"""What a thread does with a second run: refuse it, stop the first, undo the first, or let it wait."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.gateway import Gateway, GatewayProcess, parse_sse, running_gateway
from support.model_server import Reply, ScriptedModel, call, text
from support.postgres import PostgresServer
from support.waiting import until

WORKSPACE = "/mnt/user-data/workspace"
SANDBOX = {"use": "local", "allow_host_bash": True}
RULES = {"rules": [{"tool": "bash", "action": "allow"}]}


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the settings of a fresh database of each kind."""
    if request.param == "sqlite":
        return {"backend": "sqlite"}
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.settings().model_dump(include={"backend", "postgres_url", "postgres_schema"})


@pytest.fixture
def gateway(tmp_path: Path, model: ScriptedModel, database: dict[str, Any]) -> Iterator[Gateway]:
    sections = {"sandbox": SANDBOX, "guardrails": RULES, "database": database}
    with running_gateway(tmp_path, model.base_url, **sections) as running:
        yield running


def ask(question: str, **more: Any) -> dict[str, Any]:
    return {
        "input": {"messages": [{"role": "user", "content": question}]},
        "on_disconnect": "continue",
        **more,
    }


async def start(api: httpx.AsyncClient, question: str, thread: str = "t1", **more: Any) -> dict[str, Any]:
    answer = await api.post(f"/threads/{thread}/runs", json=ask(question, **more))
    assert answer.status_code == 200, answer.text
    run: dict[str, Any] = answer.json()
    return run


async def ended(api: httpx.AsyncClient, run: dict[str, Any]) -> dict[str, Any]:
    path = f"/threads/{run['thread_id']}/runs/{run['run_id']}"
    await api.get(f"{path}/join")
    found: dict[str, Any] = (await api.get(path)).json()
    return found


async def state(api: httpx.AsyncClient, thread: str = "t1") -> dict[str, Any]:
    found: dict[str, Any] = (await api.get(f"/threads/{thread}/state")).json()
    return found


async def said(api: httpx.AsyncClient, thread: str = "t1") -> list[str]:
    return [message["content"] for message in (await state(api, thread))["values"]["messages"]]


def workspace(gateway: Gateway, thread: str = "t1") -> Path:
    return gateway.home / f".deer-flow/users/default/threads/{thread}/user-data/workspace"


def tree(root: Path) -> dict[str, bytes | str]:
    return {
        str(path.relative_to(root)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def write(name: str, content: str, **more: Any) -> Reply:
    return call("write_file", description="w", path=f"{WORKSPACE}/{name}", content=content, **more)


async def test_enqueued_runs_keep_their_order_under_50_parallel_submits(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    gate = threading.Event()
    model.on("first", text("answer first").held(gate))
    model.on("number", lambda request: text(f"answer {request.asked}"))
    first = await start(api, "first")
    await model.until(lambda scripted: len(scripted.requests) == 1)

    runs = await asyncio.gather(
        *(start(api, f"number {index}", multitask_strategy="enqueue") for index in range(50))
    )
    waiting = {run["status"] for run in runs}
    listed = [run["run_id"] for run in (await api.get("/threads/t1/runs?limit=100")).json()]
    gate.set()
    for run in [first, *runs]:
        assert (await ended(api, run))["status"] == "success"

    assert waiting == {"pending"}
    question = {run["run_id"]: run["kwargs"]["input"]["messages"][0]["content"] for run in [first, *runs]}
    expected = [question[run_id] for run_id in reversed(listed)]
    messages = await said(api)
    assert messages[::2] == expected
    assert messages[1::2] == [f"answer {asked}" for asked in expected]


async def test_an_interrupt_stops_the_old_run_and_keeps_what_it_did(
    api: httpx.AsyncClient, model: ScriptedModel, gateway: Gateway
) -> None:
    gate = threading.Event()
    model.on("old", write("kept.txt", "kept"), text("never heard").held(gate))
    model.on("new", text("new answer"))
    old = await start(api, "old")
    await model.until(lambda scripted: len(scripted.requests) == 2)

    new = await start(api, "new", multitask_strategy="interrupt")

    assert (await ended(api, new))["status"] == "success"
    assert (await ended(api, old))["status"] == "interrupted"
    assert (await said(api))[0] == "old"
    assert (await said(api))[-1] == "new answer"
    assert tree(workspace(gateway)) == {"kept.txt": b"kept"}
    gate.set()


async def test_two_interrupts_in_a_row_leave_only_the_last(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    gate = threading.Event()
    model.on("old", text("never heard").held(gate))
    model.on("last", text("last answer"))
    old = await start(api, "old")
    await model.until(lambda scripted: len(scripted.requests) == 1)

    middle, last = await asyncio.gather(
        start(api, "last one", multitask_strategy="interrupt"),
        start(api, "last two", multitask_strategy="interrupt"),
    )

    ends = [(await ended(api, run))["status"] for run in (old, middle, last)]
    assert ends[0] == "interrupted"
    assert sorted(ends[1:]) == ["interrupted", "success"]
    assert (await said(api))[-1] == "last answer"
    gate.set()


async def test_a_rollback_restores_messages_title_and_files_exactly(
    api: httpx.AsyncClient, model: ScriptedModel, gateway: Gateway
) -> None:
    gate = threading.Event()
    model.on(
        "first", write("notes/a.txt", "first version"), write("same.txt", "stays"), text("The first answer.")
    )
    model.on(
        "second",
        write("notes/a.txt", "second version"),
        write("notes/b.txt", "new"),
        call("bash", description="x", command=f"cd {WORKSPACE} && rm same.txt && ln -s /etc bad && mkdir e"),
        text("never heard").held(gate),
    )
    model.on("third", text("The third answer."))
    await ended(api, await start(api, "first"))
    (workspace(gateway) / "link").symlink_to("same.txt")
    (workspace(gateway) / "same.txt").chmod(0o640)
    before = (await state(api), (await api.get("/threads/t1")).json(), tree(workspace(gateway)))
    history = (await api.post("/threads/t1/history", json={"limit": 100})).json()
    second = await start(api, "second")
    await model.until(lambda scripted: scripted.requests[-1].step == 3)
    changed = tree(workspace(gateway))
    assert (changed["notes/a.txt"], changed["bad"], "same.txt" in changed) == (
        b"second version",
        "/etc",
        False,
    )
    uploads = workspace(gateway).parent / "uploads"
    (uploads / "meanwhile.txt").write_text("by a person")

    cancelled = await api.post(
        f"/threads/t1/runs/{second['run_id']}/cancel", params={"action": "rollback", "wait": True}
    )

    run = await ended(api, second)
    assert (cancelled.status_code, run["status"], run["stop_reason"]) == (204, "interrupted", "rolled_back")
    assert run["error"] is None
    assert "deerflow-files-kept" not in cancelled.headers
    after = (await state(api), (await api.get("/threads/t1")).json(), tree(workspace(gateway)))
    assert after[0] == before[0]
    for key in ("values", "status", "metadata"):
        assert after[1][key] == before[1][key]
    assert after[2] == before[2]
    assert (await api.post("/threads/t1/history", json={"limit": 100})).json() == history
    assert not (workspace(gateway) / "e").exists()
    assert (workspace(gateway) / "same.txt").stat().st_mode & 0o777 == 0o640
    assert (uploads / "meanwhile.txt").read_text() == "by a person"
    third = await start(api, "third")
    assert (await ended(api, third))["status"] == "success"
    assert (await said(api))[-2:] == ["third", "The third answer."]
    gate.set()


async def test_a_newcomer_with_rollback_takes_the_place_of_the_old_run(
    api: httpx.AsyncClient, model: ScriptedModel, gateway: Gateway
) -> None:
    gate = threading.Event()
    model.on("old", write("gone.txt", "gone"), text("never heard").held(gate))
    model.on("new", text("new answer"))
    old = await start(api, "old")
    await model.until(lambda scripted: len(scripted.requests) == 2)

    events = parse_sse(
        (await api.post("/threads/t1/runs/stream", json=ask("new", multitask_strategy="rollback"))).text
    )

    assert events[0][0] == "metadata"
    assert events[-1][0] == "end"
    assert await said(api) == ["new", "new answer"]
    assert tree(workspace(gateway)) == {}
    assert (await ended(api, old))["stop_reason"] == "rolled_back"
    gate.set()


async def test_files_above_the_limit_stay_and_the_answer_says_so(
    tmp_path: Path, model: ScriptedModel
) -> None:
    gate = threading.Event()
    model.on("first", write("big.txt", "x" * 2000), text("ok"))
    model.on("second", write("more.txt", "y"), text("never heard").held(gate))
    with running_gateway(tmp_path, model.base_url, runs={"snapshot_max_bytes": 1000}) as gateway:
        async with gateway.client() as api:
            await ended(api, await start(api, "first"))
            second = await start(api, "second")
            await model.until(
                lambda scripted: (scripted.requests[-1].asked, scripted.requests[-1].step) == ("second", 1)
            )

            answer = await api.post(
                f"/threads/t1/runs/{second['run_id']}/cancel", params={"action": "rollback", "wait": True}
            )

            run = await ended(api, second)
            stream = parse_sse(
                (await api.get(f"/threads/t1/runs/{run['run_id']}/stream?stream_mode=custom")).text
            )
            assert "more than runs.snapshot_max_bytes (1000)" in run["error"]
            assert answer.headers["deerflow-files-kept"] == run["error"]
            assert [data["files_kept"] for kind, data, _ in stream if kind == "custom"] == [run["error"]]
            assert sorted(tree(workspace(gateway))) == ["big.txt", "more.txt"]
            assert (await said(api))[0] == "first"
            gate.set()


async def test_a_run_is_cancelled_while_it_starts_in_a_tool_and_not_after_its_end(
    api: httpx.AsyncClient, model: ScriptedModel, gateway: Gateway, gate: threading.Event
) -> None:
    model.on("starts", text("x " * 50).held(gate))
    model.on("tool", call("bash", description="x", command="touch begun; sleep 60"), text("never"))
    model.on("quick", text("done"))

    starts = await start(api, "starts", thread="a")
    await api.post(f"/threads/a/runs/{starts['run_id']}/cancel?wait=1")
    tool = await start(api, "tool", thread="b")
    await until((workspace(gateway, "b") / "begun").exists)
    stopped = await api.post(f"/threads/b/runs/{tool['run_id']}/cancel?wait=1")
    quick = await ended(api, await start(api, "quick", thread="c"))
    late = await api.post(f"/threads/c/runs/{quick['run_id']}/cancel?action=rollback")

    assert (await ended(api, starts))["status"] == "interrupted"
    assert (stopped.status_code, (await ended(api, tool))["status"]) == (204, "interrupted")
    assert (late.status_code, "is not cancellable" in late.text) == (409, True)
    assert await said(api, "c") == ["quick", "done"]


async def test_a_waiting_run_can_be_cancelled_and_its_readers_see_the_end(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    gate = threading.Event()
    model.on("first", text("answer").held(gate))
    await start(api, "first")
    waiting = await start(api, "second", multitask_strategy="enqueue")
    path = f"/threads/t1/runs/{waiting['run_id']}"
    reader = asyncio.create_task(api.get(f"{path}/stream"))

    await api.post(f"{path}/cancel")

    assert [kind for kind, _, _ in parse_sse((await reader).text)] == ["end"]
    assert (await api.get(path)).json()["status"] == "interrupted"
    gate.set()


async def test_many_runs_are_cancelled_at_once(
    api: httpx.AsyncClient, model: ScriptedModel, gate: threading.Event
) -> None:
    model.on("go", text("x " * 100).held(gate))
    runs = [await start(api, "go", thread=thread) for thread in ("a", "b", "c")]
    queued = await start(api, "go", thread="a", multitask_strategy="enqueue")

    some = await api.post("/runs/cancel", json={"thread_id": "b", "run_ids": [runs[1]["run_id"]]})
    everything = await api.post("/runs/cancel", json={"status": "all"})
    shown = [
        (await api.get(f"/threads/{run['thread_id']}/runs/{run['run_id']}")).json()["status"]
        for run in [*runs, queued]
    ]
    neither = await api.post("/runs/cancel", json={})

    assert (some.status_code, everything.status_code, neither.status_code) == (204, 204, 400)
    assert set(shown) == {"interrupted"}


async def test_the_same_key_starts_one_run_however_often_it_is_sent(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(text("once"))
    headers = {"Idempotency-Key": "k1"}

    answers = await asyncio.gather(*(api.post("/runs", json=ask("go"), headers=headers) for _ in range(10)))
    again = await api.post("/runs/stream", json=ask("go"), headers=headers)

    assert len({answer.json()["run_id"] for answer in answers}) == 1
    assert answers[0].json()["run_id"] in again.headers["content-location"]
    assert parse_sse(again.text)[-1][0] == "end"
    assert len(model.requests) == 1


async def test_a_key_is_bound_to_its_thread(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    model.will_say(text("one"), text("two"))
    headers = {"Idempotency-Key": "k1"}

    first, other = [
        (await api.post(f"/threads/{name}/runs", json=ask("go"), headers=headers)).json() for name in "ab"
    ]

    assert (first["thread_id"], other["thread_id"]) == ("a", "b")
    assert first["run_id"] != other["run_id"]
    for run in (first, other):
        await ended(api, run)


async def test_a_key_that_was_sent_with_other_words_starts_nothing_and_says_so(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(text("once"))
    headers = {"Idempotency-Key": "k1"}
    await api.post("/threads/t1/runs/wait", json=ask("go"), headers=headers)

    other = await api.post("/threads/t1/runs/wait", json=ask("go further"), headers=headers)

    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    assert "Send a new key" in other.json()["detail"]
    assert len((await api.get("/threads/t1/runs")).json()) == 1
    assert len(model.requests) == 1


async def test_a_delayed_run_starts_later_and_lets_others_by(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.on("later", text("at last"))
    model.on("now", text("at once"))

    for thread, seconds in (("t1", 0.5), ("t2", 5), ("t3", 30)):  # longer where its time came too soon
        began = time.monotonic()
        later = await start(api, "later", thread=thread, after_seconds=seconds)
        response = await api.post(f"/threads/{thread}/runs", json=ask("now"))
        if time.monotonic() - began < seconds:
            break
    assert response.status_code == 200, response.text
    now = await ended(api, response.json())
    refused = await api.post(f"/threads/{thread}/runs", json=ask("x", after_seconds=-1))

    assert (later["status"], now["status"], refused.status_code) == ("pending", "success", 422)
    assert (await ended(api, later))["status"] == "success"
    assert await said(api, thread) == ["now", "at once", "later", "at last"]


@pytest.fixture
def server(tmp_path: Path, model: ScriptedModel) -> Iterator[GatewayProcess]:
    process = GatewayProcess(tmp_path, model.base_url, sandbox=SANDBOX, guardrails=RULES).start()
    yield process
    process.kill()


async def test_what_waits_survives_a_kill_in_its_order(server: GatewayProcess, model: ScriptedModel) -> None:
    gate = threading.Event()
    model.on("first", text("first answer").held(gate))
    model.on("number", lambda request: text(f"answer {request.asked}"))
    async with server.client() as api:
        first = await start(api, "first")
        queued = [await start(api, f"number {index}", multitask_strategy="enqueue") for index in range(3)]
        later = await start(api, "number later", after_seconds=1)
        await model.until(lambda scripted: len(scripted.requests) == 1)
        server.kill()
    gate.set()
    server.start()

    async with server.client() as api:
        ends = [(await ended(api, run))["status"] for run in [first, *queued, later]]
        questions = (await said(api))[::2]
    assert ends == ["success"] * 5
    assert [asked for asked in questions if asked != "number later"] == [
        "first",
        "number 0",
        "number 1",
        "number 2",
    ]
    assert "number later" in questions


async def test_a_rollback_that_was_asked_for_happens_after_a_kill(
    server: GatewayProcess, model: ScriptedModel, gate: threading.Event
) -> None:
    model.on("go", write("gone.txt", "gone"), text("no").held(gate))
    async with server.client() as api:
        run = await start(api, "go")
        await model.until(lambda scripted: len(scripted.requests) == 2)
        await api.post(f"/threads/t1/runs/{run['run_id']}/cancel?action=rollback")
        server.kill()
    server.start()

    async with server.client() as api:
        again = await api.post(f"/threads/t1/runs/{run['run_id']}/cancel?action=rollback&wait=1")
        assert again.status_code in (204, 409)
        assert (await ended(api, run))["stop_reason"] == "rolled_back"
        assert (await state(api))["values"] == {}
    assert not list(server.home.glob("**/workspace/gone.txt"))
