"""Runs over HTTP, from the client's side."""

import asyncio
import threading
from typing import Any

import httpx
import pytest
from support.gateway import parse_sse
from support.model_server import ScriptedModel, call, calls, status, text
from support.waiting import until

UI_MODES = ["values", "messages-tuple", "updates", "custom"]


def ask(question: str, **more: Any) -> dict[str, Any]:
    return {
        "assistant_id": "lead_agent",
        "input": {"messages": [{"type": "human", "content": [{"type": "text", "text": question}]}]},
        "stream_mode": UI_MODES,
        **more,
    }


async def stream(
    api: httpx.AsyncClient, thread: str, body: dict[str, Any]
) -> list[tuple[str, Any, str | None]]:
    response = await api.post(f"/threads/{thread}/runs/stream", json=body)
    assert response.status_code == 200, response.text
    return parse_sse(response.text)


async def test_a_run_uses_a_tool_and_answers(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    model.will_say(
        call("write_file", description="note", path="/mnt/user-data/workspace/n.txt", content="42\n"),
        call("read_file", description="check", path="/mnt/user-data/workspace/n.txt"),
        text("It is 42."),
    )

    events = await stream(api, "t1", ask("What is the answer?"))

    kinds = [kind for kind, _, _ in events]
    assert kinds[0] == "metadata"
    assert kinds[-1] == "end"
    assert {"values", "messages", "updates"} <= set(kinds)
    final = [data for kind, data, _ in events if kind == "values"][-1]
    assert [message["type"] for message in final["messages"]] == ["human", "ai", "tool", "ai", "tool", "ai"]
    assert final["messages"][4]["content"].startswith("42")
    assert final["messages"][-1]["content"] == "It is 42."
    assert final["title"]
    streamed = "".join(
        data[0]["content"]
        for kind, data, _ in events
        if kind == "messages" and data[0]["type"] == "AIMessageChunk"
    )
    assert streamed == "It is 42."


async def test_the_first_event_names_run_thread_and_attempt(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(text("hello"))

    response = await api.post("/threads/t1/runs/stream", json=ask("hi"))

    kind, data, event_id = parse_sse(response.text)[0]
    run_id = response.headers["content-location"].rpartition("/")[2]
    assert (kind, data) == ("metadata", {"run_id": run_id, "thread_id": "t1", "attempt": 1})
    assert response.headers["content-location"] == f"/api/threads/t1/runs/{run_id}"
    assert response.headers["cache-control"] == "no-cache, no-transform"
    assert event_id is not None
    assert event_id.endswith("-0")


async def test_message_ids_agree_in_stream_values_state_and_history(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(text("hello there"))

    events = await stream(api, "t1", ask("hi"))

    streamed = {data[0]["id"] for kind, data, _ in events if kind == "messages"}
    values = [data for kind, data, _ in events if kind == "values"][-1]["messages"]
    state = (await api.get("/threads/t1/state")).json()["values"]["messages"]
    history = (await api.post("/threads/t1/history", json={"limit": 1})).json()[0]["values"]["messages"]
    ids = [message["id"] for message in values]
    assert [message["id"] for message in state] == ids == [message["id"] for message in history]
    assert streamed == {ids[1]}


async def test_events_can_be_read_again_from_any_id_with_the_same_bytes(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(
        call("ls", description="look", path="/mnt/user-data/workspace"), text("one two three four")
    )
    first = await api.post("/threads/t1/runs/stream", json=ask("go", on_disconnect="continue"))
    run = first.headers["content-location"].removeprefix("/api")
    frames = first.text.split("\n\n")[:-1]

    for index, (_, _, event_id) in enumerate(parse_sse(first.text)):
        again = await api.get(f"{run}/stream", headers={"Last-Event-ID": event_id or ""})
        assert again.text.split("\n\n")[:-1] == frames[index + 1 :]
    whole = await api.get(f"{run}/stream", headers={"Last-Event-ID": "-1"})
    assert whole.text == first.text


async def test_a_busy_thread_rejects_a_second_run(
    api: httpx.AsyncClient, model: ScriptedModel, gate: threading.Event
) -> None:
    model.will_say(text("a slow answer to wait for").held(gate))
    first = (await api.post("/threads/t1/runs", json=ask("one"))).json()

    second = await api.post("/threads/t1/runs", json=ask("two"))

    assert second.status_code == 409
    assert first["run_id"] in second.json()["detail"]
    await api.post(f"/threads/t1/runs/{first['run_id']}/cancel?wait=1")


@pytest.mark.parametrize(("query", "status"), [("wait=1", 204), ("", 202)])
async def test_a_cancelled_run_has_ended_when_the_answer_comes_and_keeps_what_was_done(
    api: httpx.AsyncClient, model: ScriptedModel, gate: threading.Event, query: str, status: int
) -> None:
    model.will_say(text("never " * 500).held(gate, after=1))
    run = (await api.post("/threads/t1/runs", json=ask("go"))).json()
    await model.until(lambda scripted: bool(scripted.requests))

    answer = await api.post(f"/threads/t1/runs/{run['run_id']}/cancel?{query}")

    ended = (await api.get(f"/threads/t1/runs/{run['run_id']}")).json()
    assert (answer.status_code, ended["status"]) == (status, "interrupted")
    again = await api.post(f"/threads/t1/runs/{run['run_id']}/cancel")
    assert again.status_code == 409
    assert "is not cancellable" in again.json()["detail"]
    state = (await api.get("/threads/t1/state")).json()
    assert state["values"]["messages"][0]["content"] == [{"type": "text", "text": "go"}]


async def test_a_thread_goes_on_after_a_cancel_in_the_middle_of_a_tool(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.on("first", call("ask_nobody"))
    model.will_say(text("fine again"))
    await stream(api, "t1", ask("hello"))

    events = await stream(api, "t1", ask("still there?"))

    assert events[-1][0] == "end"


async def test_a_reader_that_leaves_cancels_the_run_unless_told_otherwise(
    api: httpx.AsyncClient, model: ScriptedModel, gate: threading.Event
) -> None:
    model.will_say(text("slow " * 200).held(gate, after=1))

    async with api.stream("POST", "/threads/t1/runs/stream", json=ask("go")) as response:
        run = response.headers["content-location"].removeprefix("/api")
        async for _ in response.aiter_bytes():
            break

    assert await _status_of(api, run) == "interrupted"


async def test_a_joining_reader_that_leaves_never_cancels(
    api: httpx.AsyncClient, model: ScriptedModel, gate: threading.Event
) -> None:
    model.will_say(text("slow " * 10).held(gate, after=1))
    run = (await api.post("/threads/t1/runs", json=ask("go"))).json()
    path = f"/threads/t1/runs/{run['run_id']}"

    async with api.stream("GET", f"{path}/stream") as response:
        async for _ in response.aiter_bytes():
            break
    gate.set()

    assert await _status_of(api, path) == "success"


async def test_join_returns_the_final_values(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    model.will_say(text("done", delay=0.05))
    run = (await api.post("/threads/t1/runs", json=ask("go"))).json()

    joined = await api.get(f"/threads/t1/runs/{run['run_id']}/join")

    assert joined.json()["messages"][-1]["content"] == "done"


async def test_wait_answers_with_the_error_of_a_failed_run(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(status(401, message="bad key"))

    answer = (await api.post("/threads/t1/runs/wait", json=ask("go"))).json()

    assert answer["status"] == "error"
    assert "bad key" in answer["error"]
    thread = (await api.get("/threads/t1")).json()
    assert thread["status"] == "error"


async def test_a_failed_run_says_why_in_its_stream(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    model.will_say(status(400, message="no such model"))

    events = await stream(api, "t1", ask("go"))

    assert [kind for kind, _, _ in events][-2:] == ["error", "end"]
    assert "no such model" in events[-2][1]["message"]
    assert events[-2][1]["name"]


async def test_running_from_a_checkpoint_goes_back_in_time(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(text("first"), text("second"), text("other second"))
    await stream(api, "t1", ask("one"))
    checkpoint = (await api.get("/threads/t1/state")).json()["checkpoint"]
    await stream(api, "t1", ask("two"))

    await stream(api, "t1", ask("instead", checkpoint=checkpoint))

    texts = [
        message["content"] if isinstance(message["content"], str) else message["content"][0]["text"]
        for message in (await api.get("/threads/t1/state")).json()["values"]["messages"]
    ]
    assert texts == ["one", "first", "instead", "other second"]


async def test_only_the_modes_that_were_asked_for_are_sent(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(text("hi"))

    events = await stream(api, "t1", ask("go", stream_mode="messages-tuple"))

    assert {kind for kind, _, _ in events} == {"metadata", "messages", "end"}


async def test_sub_agents_work_in_parallel_and_report(
    api: httpx.AsyncClient, model: ScriptedModel, gate: threading.Event
) -> None:
    model.on("Do part A", text("found A").held(gate))
    model.on("Do part B", text("found B").held(gate))
    model.will_say(
        calls(
            call("task", description="part A", prompt="Do part A", subagent_type="general-purpose"),
            call("task", description="part B", prompt="Do part B", subagent_type="general-purpose"),
        ),
        text("A and B"),
    )

    body = ask("do both", context={"subagent_enabled": True})
    streaming = asyncio.create_task(stream(api, "t1", body))
    await model.until(lambda scripted: scripted.in_flight == 2)
    gate.set()
    events = await streaming

    custom = [data["type"] for kind, data, _ in events if kind == "custom"]
    assert custom[:2] == ["task_started", "task_started"]
    assert custom.count("task_completed") == 2
    final = [data for kind, data, _ in events if kind == "values"][-1]["messages"]
    tools = [message for message in final if message["type"] == "tool"]
    assert {message["additional_kwargs"]["subagent_status"] for message in tools} == {"completed"}


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"input": {"messages": [{"content": "no role"}]}}, 400, "input.messages[0]"),
        ({"input": {"messages": [{"role": "user", "content": "x"}, 7]}}, 400, "input.messages[1]"),
        ({"stream_modes": ["values"]}, 422, "stream_modes"),
        ({"stream_mode": ["smoke"]}, 422, "stream_mode"),
        ({"input": {"messages": []}, "context": {"model_name": "nope"}}, 400, "nope"),
        ({"input": {"messages": []}, "config": {"recursion_limit": 0}}, 400, "recursion_limit"),
        ({"input": {"messages": []}, "context": {"subagent_enabled": "yes"}}, 400, "subagent_enabled"),
        ({"input": {"messages": []}, "assistant_id": "unknown"}, 404, "unknown"),
        ({"input": {"messages": []}, "metadata": {"auth_token": "x"}}, 400, "auth_token"),
    ],
)
async def test_bad_requests_say_what_is_wrong_and_start_nothing(
    api: httpx.AsyncClient, body: dict[str, Any], code: int, words: str
) -> None:
    answer = await api.post("/threads/t1/runs", json=body)

    assert (answer.status_code, words in answer.text) == (code, True), answer.text
    assert (await api.get("/threads/t1/runs")).status_code == 404


async def test_malformed_and_huge_bodies_are_refused(api: httpx.AsyncClient) -> None:
    broken = await api.post("/threads/t1/runs", content=b"{", headers={"Content-Type": "application/json"})
    much = b"x" * (21 * 1024 * 1024)
    huge = await api.post("/threads/t1/runs", content=much)
    # Only the route of uploads takes more, not a path that ends like it.
    path = "/threads/t1/artifacts/mnt/user-data/uploads"
    tricks = [await api.request(method, path, content=much) for method in ("POST", "PUT")]

    assert (broken.status_code, huge.status_code) == (422, 413)
    assert [answer.status_code for answer in tricks] == [413, 413]


async def _status_of(api: httpx.AsyncClient, path: str) -> str:
    async def ended() -> str | None:
        status = (await api.get(path)).json()["status"]
        return None if status in ("pending", "running") else str(status)

    return str(await until(ended))
