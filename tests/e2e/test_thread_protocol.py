"""The thread protocol over a real gateway: commands, the stream of events, and reading it again."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.gateway import Gateway, GatewayProcess, running_gateway
from support.model_server import ScriptedModel, call, status, text

from deerflow.domain import new_id

HOST = {"use": "local", "allow_host_bash": True}
CHANNELS = ["values", "updates", "messages", "tools", "lifecycle", "input", "checkpoints", "tasks", "custom"]
ENDS = ("completed", "failed", "interrupted")
LOOK = call("ls", description="look", path="/mnt/user-data/workspace")

Event = dict[str, Any]


@pytest.fixture(scope="module")
def scripted() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        model.on("look", LOOK, text("All quiet."))
        model.on("one", LOOK, text("first"))
        model.on("two", text("second"))
        model.on("break", status(401, message="wrong key"))
        model.on("ask", call("bash", description="Step", command="echo hi"), text("Said."))
        delegated = call("task", description="part", prompt="sub work", subagent_type="general-purpose")
        model.on("deleg", delegated, text("ok"))
        model.on("sub work", LOOK, text("sub done"))
        asking = call("task", description="careful", prompt="inner step", subagent_type="general-purpose")
        model.on("outer", asking, text("all done"))
        model.on("inner step", LOOK, call("bash", description="Step", command="echo in"), text("inner done"))
        yield model


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, scripted: ScriptedModel) -> Iterator[Gateway]:
    """One gateway for all tests here; each has a thread of its own."""
    home = tmp_path_factory.mktemp("site")
    with running_gateway(home, scripted.base_url, sandbox=HOST) as running:
        yield running


@pytest.fixture
def thread() -> str:
    return new_id()


async def send(api: httpx.AsyncClient, thread: str, method: str, **params: Any) -> dict[str, Any]:
    body = {"id": 7, "method": method, "params": params}
    response = await api.post(f"/threads/{thread}/commands", json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    assert answer["id"] == 7
    return answer


async def start(api: httpx.AsyncClient, thread: str, words: str, **params: Any) -> dict[str, Any]:
    given = {"messages": [{"role": "user", "content": words}]}
    answer = await send(api, thread, "run.start", assistant_id="lead_agent", input=given, **params)
    assert answer["type"] == "success", answer
    return answer


async def frames(
    api: httpx.AsyncClient, thread: str, **wanted: Any
) -> AsyncGenerator[tuple[str, Event], None]:
    """Yield each frame as it came, with the event in it; the stream has no end of its own."""
    body = {"channels": CHANNELS, **wanted}
    async with api.stream("POST", f"/threads/{thread}/stream/events", json=body) as response:
        assert response.status_code == 200
        lines: list[str] = []
        async for line in response.aiter_lines():
            if line:
                lines.append(line)
                continue
            frame, lines = "\n".join(lines), []
            if not frame.startswith(":"):
                yield frame, json.loads(frame.split("data: ", 1)[1].split("\nid: ")[0])


async def read(
    api: httpx.AsyncClient, thread: str, *, ends: int = 1, **wanted: Any
) -> list[tuple[str, Event]]:
    """Return the frames up to the end of so many runs."""
    seen = []
    async with asyncio.timeout(60), aclosing(frames(api, thread, **wanted)) as stream:
        async for frame, event in stream:
            seen.append((frame, event))
            if is_end(event):
                ends -= 1
                if ends == 0:
                    break
    return seen


def is_end(event: Event) -> bool:
    params = event["params"]
    return event["method"] == "lifecycle" and not params["namespace"] and params["data"]["event"] in ENDS


def events_of(frames: list[tuple[str, Event]]) -> list[Event]:
    return [event for _, event in frames]


def data_of(frames: list[tuple[str, Event]], method: str) -> list[Any]:
    return [event["params"]["data"] for _, event in frames if event["method"] == method]


async def test_a_run_is_read_from_its_first_event_by_who_comes_after_the_answer(
    api: httpx.AsyncClient, thread: str
) -> None:
    answer = await start(api, thread, "look around")
    seen = await read(api, thread)

    events = events_of(seen)
    seqs = [event["seq"] for event in events]
    assert answer["result"]["run_id"]
    assert answer["meta"] == {"applied_through_seq": 0}
    assert seqs[0] == 1
    assert seqs == sorted(set(seqs))
    assert len({event["event_id"] for event in events}) == len(events)
    assert data_of(seen, "lifecycle") == [
        {"event": "running", "graph_name": "lead_agent"},
        {"event": "completed", "graph_name": "lead_agent"},
    ]
    assert [data["event"] for data in data_of(seen, "tools")] == ["tool-started", "tool-finished"]
    assert {"values", "updates", "messages", "checkpoints"} <= {event["method"] for event in events}
    streamed = [data["id"] for data in data_of(seen, "messages") if data["event"] == "message-start"]
    final = data_of(seen, "values")[-1]["messages"]
    assert [message["id"] for message in final if message["type"] != "human"] == streamed
    state = (await api.get(f"/threads/{thread}/state")).json()
    assert data_of(seen, "checkpoints")[-1]["id"] == state["checkpoint"]["checkpoint_id"]
    assert data_of(seen, "checkpoints")[-1]["parent_id"] == state["parent_checkpoint"]["checkpoint_id"]
    frame, event = seen[0]
    assert frame.splitlines()[0] == f"event: {event['method']}"
    assert frame.splitlines()[2] == f"id: {event['seq']}"


async def test_a_reader_that_comes_back_gets_the_rest_byte_for_byte_also_after_a_restart(
    tmp_path: Path, model: ScriptedModel, thread: str
) -> None:
    model.on("one", LOOK, text("first of all"))
    model.on("two", text("second of all"))
    with running_gateway(tmp_path, model.base_url, sandbox=HOST) as gateway:
        async with gateway.client() as api:
            await start(api, thread, "one")
            first = await read(api, thread)
            second = await start(api, thread, "two")
            both = await read(api, thread, ends=2, since=0)
    whole = [frame for frame, _ in both]

    with running_gateway(tmp_path, model.base_url, sandbox=HOST) as gateway:
        async with gateway.client() as api:
            for index in range(0, len(both) - 1, 7):
                since = both[index][1]["seq"]
                ends = sum(is_end(event) for _, event in both[index + 1 :])
                rest = await read(api, thread, ends=ends, since=since)
                assert [frame for frame, _ in rest] == whole[index + 1 :]
            fresh = await read(api, thread)

    assert whole[: len(first)] == [frame for frame, _ in first]
    assert [frame for frame, _ in fresh] == whole[len(first) :], "without a number: the last run alone"
    assert first[-1][1]["seq"] <= second["meta"]["applied_through_seq"] < fresh[0][1]["seq"]


async def test_a_reader_goes_on_where_it_was_after_the_server_was_killed(
    tmp_path: Path, model: ScriptedModel, thread: str, gate: threading.Event
) -> None:
    model.on("long", LOOK, text("word " * 40).held(gate, after=5))
    server = GatewayProcess(tmp_path, model.base_url, sandbox=HOST).start()
    seen: list[tuple[str, Event]] = []
    try:
        async with server.client() as api:
            await start(api, thread, "long")
            with suppress(httpx.TransportError):
                async with asyncio.timeout(60), aclosing(frames(api, thread)) as stream:
                    async for frame in stream:
                        seen.append(frame)
                        if len(data_of(seen, "tools")) == 2 and frame[1]["method"] == "messages":
                            server.kill()
        gate.set()
        server.start()
        async with server.client() as api:
            rest = await read(api, thread, since=seen[-1][1]["seq"])
            whole = await read(api, thread)
    finally:
        server.stop()

    assert [event["seq"] for event in events_of(rest)] == sorted(event["seq"] for event in events_of(rest))
    assert data_of(rest, "lifecycle") == [{"event": "completed", "graph_name": "lead_agent"}]
    assert data_of(rest, "values")[-1]["messages"][-1]["content"][0]["text"] == "word " * 40
    assert rest == whole[-len(rest) :], "who reads it all later sees the same"
    assert {event["event_id"] for event in events_of(seen)}.isdisjoint(
        event["event_id"] for event in events_of(rest)
    )


async def test_a_stream_waits_for_a_thread_and_follows_run_after_run_of_all_routes(
    api: httpx.AsyncClient, thread: str
) -> None:
    wanted = ["lifecycle", "tools", "messages"]
    reading = asyncio.create_task(read(api, thread, ends=2, channels=wanted, since=0))
    await asyncio.sleep(0)

    await start(api, thread, "two")
    await api.post(
        f"/threads/{thread}/runs/wait",
        json={
            "input": {"messages": [{"role": "user", "content": "two"}]},
            "multitask_strategy": "enqueue",
        },
    )
    seen = await reading

    assert [data["event"] for data in data_of(seen, "lifecycle")] == ["running", "completed"] * 2
    spoken = [
        data["content"]["text"]
        for data in data_of(seen, "messages")
        if "finish" in data["event"] and "content" in data
    ]
    assert spoken == ["second", "second"]


async def test_a_reader_comes_back_to_a_thread_of_which_a_run_was_deleted(
    api: httpx.AsyncClient, thread: str
) -> None:
    first = (await start(api, thread, "one"))["result"]["run_id"]
    await read(api, thread)
    await start(api, thread, "two")
    second = await read(api, thread)

    deleted = await api.delete(f"/threads/{thread}/runs/{first}")
    again = await read(api, thread, since=second[1][1]["seq"])

    assert deleted.status_code == 204
    assert [event["event_id"] for event in events_of(again)] == [
        event["event_id"] for event in events_of(second)
    ]


async def test_filters_leave_gaps_in_the_same_numbers(api: httpx.AsyncClient, thread: str) -> None:
    await start(api, thread, "look around")
    everything = {event["event_id"]: event for event in events_of(await read(api, thread))}

    narrow = await read(api, thread, channels=["lifecycle", "messages"], namespaces=[[]], depth=0)

    assert {event["method"] for event in events_of(narrow)} == {"lifecycle", "messages"}
    assert {len(event["params"]["namespace"]) for event in events_of(narrow)} == {0}
    assert all(everything[event["event_id"]] == event for event in events_of(narrow))


async def test_a_failed_run_says_why_live_and_later(api: httpx.AsyncClient, thread: str) -> None:
    await start(api, thread, "break")
    live, later = await read(api, thread), await read(api, thread)

    end = data_of(live, "lifecycle")[-1]
    assert end["event"] == "failed"
    assert end["error"]
    assert later == live


async def test_a_stopped_run_ends_interrupted_and_the_queue_goes_on(
    api: httpx.AsyncClient, scripted: ScriptedModel, thread: str, gate: threading.Event
) -> None:
    scripted.on("slow", text("word " * 50).held(gate, after=3))
    slow = await start(api, thread, "slow")
    await scripted.until(lambda model: any(request.asked == "slow" for request in model.requests))
    queued = await start(api, thread, "two")
    refused = await send(
        api,
        thread,
        "run.start",
        assistant_id="lead_agent",
        input={"messages": []},
        multitaskStrategy="reject",
    )

    run_id = slow["result"]["run_id"]
    cancelled = await api.post(
        f"/threads/{thread}/runs/{run_id}/cancel", params={"wait": 0, "action": "interrupt"}
    )
    seen = await read(api, thread, ends=2, since=0)
    gate.set()

    assert cancelled.status_code == 202
    assert [data["event"] for data in data_of(seen, "lifecycle")] == [
        "running",
        "interrupted",
        "running",
        "completed",
    ]
    assert queued["meta"]["applied_through_seq"] == 0, "the first run's events are not history yet"
    assert refused["error"] == "unknown_error"
    assert refused["message"].startswith("409")


async def test_an_answer_goes_to_the_question_it_names_and_only_once(
    api: httpx.AsyncClient, thread: str
) -> None:
    await start(api, thread, "ask")
    (asked,) = data_of(await read(api, thread), "input.requested")
    again = await read(api, thread, channels=["input", "lifecycle"])
    response = {"decisions": [{"type": "approve", "hash": asked["payload"]["hash"]}]}
    name = asked["interrupt_id"]

    unknown = await send(api, thread, "input.respond", interrupt_id="bogus", response=1)
    nothing = await send(api, thread, "input.respond", responses=[])
    given = await send(api, thread, "input.respond", namespace=[], interrupt_id=name, response=response)
    late = await send(api, thread, "input.respond", interrupt_id=name, response=response)
    seen = await read(api, thread, since=given["meta"]["applied_through_seq"])

    assert asked["value"] == asked["payload"]
    assert data_of(again, "input.requested") == [asked]
    assert [unknown["error"], nothing["error"], late["error"]] == [
        "no_such_interrupt",
        "invalid_argument",
        "no_such_interrupt",
    ]
    assert given["result"] == {}
    assert [data["event"] for data in data_of(seen, "tools")] == ["tool-started", "tool-finished"]
    assert data_of(seen, "lifecycle")[-1]["event"] == "completed"
    assert data_of(seen, "values")[-1]["messages"][-1]["content"] == [{"type": "text", "text": "Said."}]


def tool_events(seen: list[tuple[str, Event]], namespace: list[str]) -> list[tuple[str, str]]:
    """Return moment and call of the tools events in a namespace."""
    return [
        (event["params"]["data"]["event"], event["params"]["data"]["tool_call_id"])
        for _, event in seen
        if event["method"] == "tools" and event["params"]["namespace"] == namespace
    ]


async def test_a_sub_agents_question_is_asked_and_answered_in_its_namespace(
    api: httpx.AsyncClient, thread: str
) -> None:
    await start(api, thread, "outer", config={"configurable": {"subagent_enabled": True}})
    before = await read(api, thread)
    (asked,) = [event["params"] for event in events_of(before) if event["method"] == "input.requested"]
    (started,) = [data for data in data_of(before, "lifecycle") if data["event"] == "started"]
    state = (await api.get(f"/threads/{thread}/state")).json()
    decision = {"type": "approve", "hash": asked["data"]["payload"]["hash"]}

    given = await send(
        api,
        thread,
        "input.respond",
        namespace=asked["namespace"],
        interrupt_id=asked["data"]["interrupt_id"],
        response={"decisions": [decision]},
    )
    after = await read(api, thread, since=given["meta"]["applied_through_seq"])

    place = asked["namespace"]
    assert place == started["namespace"] == state["tasks"][0]["interrupts"][0]["namespace"]
    assert [moment for moment, _ in tool_events(before, place)] == [
        "tool-started", "tool-finished", "tool-started", "tool-error",
    ]  # fmt: skip
    (begun, finished) = tool_events(after, place)
    assert (begun[0], finished[0], begun[1]) == ("tool-started", "tool-finished", finished[1])
    assert [moment for moment, _ in tool_events(after, [])] == ["tool-started", "tool-finished"]
    told = [
        event["params"]["data"]["messages"]
        for event in events_of(after)
        if event["method"] == "values" and event["params"]["namespace"] == place
    ]
    kinds = ["human", "ai", "tool", "ai"]
    assert [message["type"] for message in told[0]] == kinds
    assert told[0][-1]["tool_calls"][0]["id"] == finished[1]
    assert [message["type"] for message in told[-1]] == [*kinds, "tool", "ai"]
    assert data_of(after, "lifecycle")[-1]["event"] == "completed"


async def test_what_is_sent_to_a_thread_that_waits_is_the_answer(api: httpx.AsyncClient, thread: str) -> None:
    await start(api, thread, "ask")
    (asked,) = data_of(await read(api, thread), "input.requested")

    answer = {"decisions": [{"type": "approve", "hash": asked["payload"]["hash"]}]}
    began = await send(api, thread, "run.start", assistant_id="lead_agent", input=answer)
    seen = await read(api, thread, since=began["meta"]["applied_through_seq"])

    assert data_of(seen, "values")[-1]["messages"][-1]["content"] == [{"type": "text", "text": "Said."}]


async def test_a_sub_agent_answers_below_its_call(api: httpx.AsyncClient, thread: str) -> None:
    await start(api, thread, "deleg", config={"configurable": {"subagent_enabled": True}})
    seen = await read(api, thread)

    below = [event for event in events_of(seen) if event["params"]["namespace"]]
    started = next(event for event in below if event["params"]["data"].get("event") == "started")
    here = started["params"]["namespace"]
    assert started["params"]["data"]["cause"]["type"] == "toolCall"
    told = [event["params"]["data"] for event in below if event["params"]["namespace"] == here]
    assert told[1]["messages"][0]["content"] == "part"
    assert [data["event"] for data in told if str(data.get("event")).startswith("tool-")] == [
        "tool-started",
        "tool-finished",
    ]
    assert told[-1]["event"] == "completed"
    assert told[-2]["messages"][-1]["content"] == [{"type": "text", "text": "sub done"}]


async def read_below(api: httpx.AsyncClient, thread: str, namespace: list[str]) -> list[str]:
    """Return the frames of a sub-agent's namespace up to its end."""
    seen = []
    async with asyncio.timeout(60), aclosing(frames(api, thread, namespaces=[namespace])) as stream:
        async for frame, event in stream:
            seen.append(frame)
            params = event["params"]
            is_own = event["method"] == "lifecycle" and params["namespace"] == namespace
            if is_own and params["data"]["event"] in ENDS:
                break
    return seen


async def test_whoever_reads_a_sub_agent_gets_all_of_it_whenever_the_reader_came(
    api: httpx.AsyncClient, thread: str
) -> None:
    await start(api, thread, "deleg", config={"configurable": {"subagent_enabled": True}})
    readers: list[asyncio.Task[list[str]]] = []
    whole: list[tuple[str, Event]] = []
    async with asyncio.timeout(60), aclosing(frames(api, thread)) as stream:
        async for frame, event in stream:
            if event["params"]["namespace"]:
                whole.append((frame, event))
            if whole:  # a reader that comes at each moment from the sub-agent's start to the run's end
                here = whole[0][1]["params"]["namespace"]
                readers.append(asyncio.create_task(read_below(api, thread, here)))
            if is_end(event):
                break
    later = await read_below(api, thread, here)

    below = [(frame, event) for frame, event in whole if event["params"]["namespace"][:1] == here]
    assert later == [frame for frame, _ in below]
    assert all(seen == later for seen in await asyncio.gather(*readers))
    # Clients drop events whose id they know; a replayed state must count again after an older one.
    assert {event["method"] for _, event in below if "event_id" not in event} == {"values"}


REFUSED: list[tuple[str, Any, str]] = [
    ("foo.bar", {}, "unknown_command"),
    ("state.get", {}, "unknown_command"),
    ("run.start", None, "invalid_argument"),
    ("run.start", {"assistant_id": 7}, "invalid_argument"),
    ("run.start", {"assistant_id": "lead_agent", "input": "text"}, "invalid_argument"),
    (
        "run.start",
        {"assistant_id": "lead_agent", "input": {"messages": [{"role": "?"}]}},
        "invalid_argument",
    ),
    ("run.start", {"assistant_id": "lead_agent", "config": {"configurable": ["x"]}}, "invalid_argument"),
    ("run.start", {"assistant_id": "nope", "input": {}}, "unknown_error"),
    ("input.respond", {"interrupt_id": "x", "response": 1}, "no_such_run"),
    ("input.respond", {"responses": [7]}, "invalid_argument"),
    ("agent.getTree", {}, "no_such_run"),
    ("subscription.unsubscribe", {"subscription_id": "x"}, "no_such_subscription"),
    ("subscription.reconnect", {"run_id": "x"}, "no_such_run"),
    ("subscription.subscribe", {"channels": ["bogus"]}, "invalid_argument"),
]


async def test_what_cannot_be_done_is_answered_with_a_code(api: httpx.AsyncClient, thread: str) -> None:
    for method, params, code in REFUSED:
        body = {"id": 3, "method": method, "params": params}
        response = await api.post(f"/threads/{thread}/commands", json=body)

        assert response.status_code == 200
        assert {**response.json(), "message": ""} == {"type": "error", "id": 3, "error": code, "message": ""}
        assert response.json()["message"]


async def test_malformed_requests_are_refused(api: httpx.AsyncClient, thread: str) -> None:
    url, stream = f"/threads/{thread}/commands", f"/threads/{thread}/stream/events"

    assert (await api.post(url, content="{oops")).json() == {"detail": "Invalid JSON body"}
    for body in ([], {"method": "run.start"}, {"id": "x", "method": "run.start"}):
        answer = await api.post(url, json=body)
        assert answer.status_code == 400
        assert answer.json()["error"] == "invalid_argument"
    for body in ({}, {"channels": []}, {"channels": "values"}, {"channels": ["debug"]}):
        answer = await api.post(stream, json=body)
        assert answer.status_code == 400
        assert "channels" in answer.json()["detail"]
    assert (await api.post(stream, content="{oops")).status_code == 400
    assert (await api.post("/threads/no.id/stream/events", json={"channels": CHANNELS})).status_code == 422
    bad = await api.post("/threads/no.id/commands", json={"id": 1, "method": "run.start", "params": {}})
    assert bad.json()["message"].startswith("422")
    assert (await api.put(url, json={})).status_code == 405


async def test_a_checkpoint_that_is_not_there_is_named(api: httpx.AsyncClient, thread: str) -> None:
    await start(api, thread, "two")
    await read(api, thread)

    answer = await send(
        api,
        thread,
        "run.start",
        assistant_id="lead_agent",
        input={"messages": []},
        config={"configurable": {"checkpoint_id": new_id()}},
    )

    assert answer["error"] == "no_such_checkpoint"
