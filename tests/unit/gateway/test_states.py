"""States over HTTP in the words of LangGraph's clients: where a change has led, and one checkpoint alone."""

from typing import Any

import httpx
from support.model_server import ScriptedModel, text


async def talked(api: httpx.AsyncClient, scripted: ScriptedModel, thread: str) -> list[dict[str, Any]]:
    """Return the states of a thread in which one question was answered, newest first."""
    scripted.on(thread, text("hello"))
    body = {"input": {"messages": [{"role": "user", "content": f"hi, {thread}"}]}}
    assert (await api.post(f"/threads/{thread}/runs/wait", json=body)).status_code == 200
    states: list[dict[str, Any]] = (await api.post(f"/threads/{thread}/history", json={"limit": 100})).json()
    return states


async def test_a_changed_state_says_where_it_is(
    api: httpx.AsyncClient, scripted: ScriptedModel, thread: str
) -> None:
    await talked(api, scripted, thread)

    changed = (await api.post(f"/threads/{thread}/state", json={"values": {"title": "标题"}})).json()
    now = (await api.get(f"/threads/{thread}/state")).json()

    place = {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": now["checkpoint_id"]}
    assert changed["configurable"] == place
    assert now["values"]["title"] == "标题"


async def test_the_history_of_a_checkpoint_is_that_checkpoint(
    api: httpx.AsyncClient, scripted: ScriptedModel, thread: str
) -> None:
    states = await talked(api, scripted, thread)
    chosen = states[1]["checkpoint"]

    at = await api.post(f"/threads/{thread}/history", json={"checkpoint": chosen})
    inside = await api.post(f"/threads/{thread}/history", json={"checkpoint": {"checkpoint_ns": "tools:1"}})

    assert len(states) > 2
    assert [state["checkpoint_id"] for state in at.json()] == [chosen["checkpoint_id"]]
    assert inside.json() == []


async def test_a_state_that_is_not_there_is_not_changed(
    api: httpx.AsyncClient, scripted: ScriptedModel, thread: str
) -> None:
    states = await talked(api, scripted, thread)

    body = {"values": {"title": "new"}, "checkpoint_id": "1f000000-0000-6000-8000-000000000000"}
    refused = await api.post(f"/threads/{thread}/state", json=body)

    assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
    assert (await api.get(f"/threads/{thread}/state")).json()["checkpoint_id"] == states[0]["checkpoint_id"]


async def test_steps_from_elsewhere_that_cannot_be_leave_no_thread(
    api: httpx.AsyncClient, thread: str
) -> None:
    said = {"values": {"messages": [{"role": "user", "content": "hi"}], "title": "Taken in"}}
    good = {"updates": [{**said, "as_node": "__start__"}]}
    bad = {"updates": [{"values": {"mood": "good"}, "as_node": "model"}]}

    refused = await api.post("/threads", json={"thread_id": thread, "supersteps": [good, bad]})
    gone = await api.get(f"/threads/{thread}")
    made = await api.post("/threads", json={"thread_id": thread, "supersteps": [good]})
    state = await api.get(f"/threads/{thread}/state")

    assert (refused.status_code, "mood" in refused.json()["detail"], gone.status_code) == (400, True, 404)
    assert made.json()["values"] == {"title": "Taken in"}
    assert [message["content"] for message in state.json()["values"]["messages"]] == ["hi"]


async def test_the_thread_protocols_addresses_take_no_other_method(
    api: httpx.AsyncClient, thread: str
) -> None:
    for path in (f"/threads/{thread}/commands", f"/threads/{thread}/stream/events"):
        for method in ("GET", "PUT", "DELETE"):
            answer = await api.request(method, path)
            assert (answer.status_code, answer.headers["allow"]) == (405, "POST"), (method, path)


async def test_what_goes_on_until_a_run_ends_has_nothing_for_a_mere_look(
    api: httpx.AsyncClient, thread: str
) -> None:
    await api.post("/threads", json={"thread_id": thread})

    for path in (f"/threads/{thread}/stream", f"/threads/{thread}/runs/r1/stream?action=interrupt"):
        answer = await api.head(path)
        assert answer.status_code == 405, path
        assert "GET" in answer.headers["allow"]


async def test_a_thread_can_be_looked_for_without_reading_it(
    api: httpx.AsyncClient, scripted: ScriptedModel, thread: str
) -> None:
    await talked(api, scripted, thread)

    there = await api.head(f"/threads/{thread}")
    gone = await api.head(f"/threads/{thread}-not")

    assert (there.status_code, there.content) == (200, b"")
    assert (gone.status_code, gone.content) == (404, b"")
