"""Threads and their states over HTTP."""

import asyncio
import threading
from typing import Any

import httpx
import pytest
from support.model_server import ScriptedModel, text

Json = dict[str, Any]


async def turn(api: httpx.AsyncClient, model: ScriptedModel, thread: str, question: str) -> Json:
    model.will_say(text(f"answer to {question}"))
    body = {"input": {"messages": [{"role": "user", "content": question}]}}
    answer: Json = (await api.post(f"/threads/{thread}/runs/wait", json=body)).json()
    return answer


async def test_a_thread_is_made_once(api: httpx.AsyncClient, thread: str) -> None:
    body = {"thread_id": thread, "metadata": {"a": 1, "user_id": "eve", "owner_id": "eve"}}
    first = await api.post("/threads", json=body)
    again = await api.post("/threads", json={"thread_id": thread, "metadata": {"a": 2}})
    refused = await api.post("/threads", json={"thread_id": thread, "if_exists": "raise"})

    assert first.json() == again.json()
    assert first.json()["metadata"] == {"a": 1}
    assert set(first.json()) == {
        "thread_id", "status", "created_at", "updated_at", "state_updated_at", "metadata", "values",
        "interrupts", "waits_for_answer", "error",
    }  # fmt: skip
    assert (refused.status_code, thread in refused.json()["detail"]) == (409, True)


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", "x" * 65, "ü", 7])
async def test_a_name_that_is_none_is_refused(api: httpx.AsyncClient, name: Any) -> None:
    assert (await api.post("/threads", json={"thread_id": name})).status_code == 422


async def test_a_thread_without_a_name_gets_one(api: httpx.AsyncClient) -> None:
    made = [(await api.post("/threads", json={})).json()["thread_id"] for _ in range(2)]

    assert made[0] != made[1]


async def test_threads_are_found_sorted_paged_and_cut_to_fields(api: httpx.AsyncClient, thread: str) -> None:
    mine = {"batch": thread}
    made = [f"{thread[:20]}-{number}" for number in range(5)]
    for number, name in enumerate(made):
        await api.post("/threads", json={"thread_id": name, "metadata": {**mine, "even": number % 2 == 0}})

    async def found(**query: Any) -> list[Any]:
        answer = await api.post("/threads/search", json={"metadata": mine, **query})
        assert answer.status_code == 200, answer.text
        return [entry["thread_id"] for entry in answer.json()]

    assert await found() == made[::-1]
    assert await found(sort_by="created_at", sort_order="asc") == made
    assert await found(limit=2, offset=1) == made[::-1][1:3]
    assert await found(offset=99) == []
    assert await found(metadata={**mine, "even": True}) == [made[4], made[2], made[0]]
    assert await found(ids=[made[1], "unknown"]) == [made[1]]
    assert await found(status="busy") == []
    wanted = {"metadata": mine, "limit": 1, "select": ["thread_id", "metadata"]}
    assert set((await api.post("/threads/search", json=wanted)).json()[0]) == {"thread_id", "metadata"}
    assert (await api.post("/threads/count", json={"metadata": mine})).json() == 5
    assert len((await api.post("/threads/search")).json()) >= 5


@pytest.mark.parametrize(
    "query",
    [
        {"limit": 0}, {"limit": 1001}, {"limit": "many"}, {"offset": -1}, {"sort_by": "size"},
        {"status": "dancing"}, {"metadata": []}, {"ids": "x"},
    ],
)  # fmt: skip
async def test_a_search_that_makes_no_sense_is_refused(api: httpx.AsyncClient, query: Json) -> None:
    assert (await api.post("/threads/search", json=query)).status_code == 422


async def test_pinning_says_nothing_about_use(api: httpx.AsyncClient, thread: str) -> None:
    made = (await api.post("/threads", json={"thread_id": thread, "metadata": {"a": 1}})).json()

    pinned = (await api.patch(f"/threads/{thread}", json={"metadata": {"deerflow_pinned": True}})).json()
    changed = (await api.patch(f"/threads/{thread}", json={"metadata": {"b": 2, "user_id": "eve"}})).json()

    assert pinned["updated_at"] == made["updated_at"]
    assert changed["updated_at"] > made["updated_at"]
    assert changed["metadata"] == {"a": 1, "b": 2, "deerflow_pinned": True}
    assert (await api.patch("/threads/unknown", json={"metadata": {}})).status_code == 404


async def test_a_deleted_thread_is_gone_with_its_runs_and_files(
    api: httpx.AsyncClient, scripted: ScriptedModel, thread: str
) -> None:
    await turn(api, scripted, thread, "hello")
    await api.post(f"/threads/{thread}/uploads", files=[("files", ("a.txt", b"x"))])

    first, second = [await api.delete(f"/threads/{thread}") for _ in range(2)]

    assert (first.status_code, first.json()["success"], second.status_code) == (200, True, 404)
    for path in ("", "/state", "/runs", "/uploads/list", "/artifacts/mnt/user-data/uploads/a.txt"):
        assert (await api.get(f"/threads/{thread}{path}")).status_code == 404
    assert "messages" not in (await api.post("/threads", json={"thread_id": thread})).json()["values"]
    assert (await turn(api, scripted, thread, "again"))["messages"][0]["content"] == "again"


async def test_a_thread_at_work_is_neither_deleted_nor_edited(
    api: httpx.AsyncClient, scripted: ScriptedModel, thread: str
) -> None:
    gate = threading.Event()
    scripted.on(f"hold {thread}", text("held answer").held(gate))
    body = {"input": {"messages": [f"hold {thread}"]}}
    run = (await api.post(f"/threads/{thread}/runs", json=body)).json()

    deleted = await api.delete(f"/threads/{thread}")
    edited = await api.post(f"/threads/{thread}/state", json={"values": {"title": "x"}})
    listed = (await api.get(f"/threads/{thread}")).json()
    gate.set()
    await api.get(f"/threads/{thread}/runs/{run['run_id']}/join")

    assert (deleted.status_code, edited.status_code, listed["status"]) == (409, 409, "busy")
    assert (await api.delete(f"/threads/{thread}")).status_code == 200


async def test_a_title_set_by_hand_shows_in_the_list(api: httpx.AsyncClient, thread: str) -> None:
    await api.post("/threads", json={"thread_id": thread})

    one = await api.post(f"/threads/{thread}/state", json={"values": {"title": "By hand"}})
    listed = (await api.post("/threads/search", json={"ids": [thread]})).json()[0]
    await api.post(f"/threads/{thread}/state", json={"values": [{"title": "Not this"}, {"title": "This"}]})
    later = (await api.get(f"/threads/{thread}")).json()

    assert one.json()["values"]["title"] == "By hand"
    assert (listed["values"]["title"], later["values"]["title"]) == ("By hand", "This")


async def test_what_is_set_replaces_and_messages_are_added(
    api: httpx.AsyncClient, scripted: ScriptedModel, thread: str
) -> None:
    await turn(api, scripted, thread, "hello")
    values = {
        "artifacts": ["/mnt/user-data/outputs/a.md"],
        "messages": [{"role": "user", "content": "by hand"}],
    }

    await api.post(f"/threads/{thread}/state", json={"values": values})
    await api.post(
        f"/threads/{thread}/state", json={"values": {"artifacts": ["/mnt/user-data/outputs/b.md"]}}
    )
    state = (await api.get(f"/threads/{thread}/state")).json()

    assert state["values"]["artifacts"] == ["/mnt/user-data/outputs/b.md"]
    assert state["values"]["messages"][-1]["content"] == "by hand"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"values": {"mood": "good"}}, "mood"),
        ({"values": {"jump_to": "end"}}, "jump_to"),
        ({"values": {"title": 7}}, "values.title"),
        ({"values": {"artifacts": "a.md"}}, "values.artifacts"),
        ({"values": {"todos": [{"content": "x"}]}}, "values.todos"),
        ({"values": {"messages": [{"content": "no role"}]}}, "messages[0]"),
        ({"values": {"title": "x"}, "as_node": "nobody"}, "nobody"),
        ({"values": {"title": "x"}, "checkpoint": {"configurable": 7}}, "checkpoint"),
    ],
)
async def test_a_state_that_cannot_be_is_refused(
    api: httpx.AsyncClient, thread: str, body: Json, words: str
) -> None:
    await api.post("/threads", json={"thread_id": thread})

    answer = await api.post(f"/threads/{thread}/state", json=body)

    assert (answer.status_code, words in answer.text) == (400, True), answer.text
    assert (await api.get(f"/threads/{thread}/state")).json()["values"] == {}


async def test_history_can_be_paged(api: httpx.AsyncClient, scripted: ScriptedModel, thread: str) -> None:
    await turn(api, scripted, thread, "one")
    await turn(api, scripted, thread, "two")
    everything = (await api.post(f"/threads/{thread}/history", json={"limit": 100})).json()

    paged: list[Json] = []
    while page := (
        await api.post(
            f"/threads/{thread}/history",
            json={"limit": 2, "before": paged[-1]["checkpoint_id"] if paged else None},
        )
    ).json():
        paged += page

    assert [state["checkpoint_id"] for state in paged] == [state["checkpoint_id"] for state in everything]
    assert everything[0]["values"]["messages"][-1]["content"] == "answer to two"
    assert everything[0]["checkpoint"]["thread_id"] == thread
    by_object = {"limit": 2, "before": everything[0]["checkpoint"]}
    assert (await api.post(f"/threads/{thread}/history", json=by_object)).json() == everything[1:3]
    by_query = {"limit": 1, "before": everything[1]["checkpoint_id"]}
    assert (await api.get(f"/threads/{thread}/history", params=by_query)).json() == everything[2:3]
    at = await api.get(f"/threads/{thread}/state/{everything[2]['checkpoint_id']}")
    assert at.json() == everything[2]


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "x"])
async def test_history_has_its_limits(api: httpx.AsyncClient, thread: str, limit: str) -> None:
    await api.post("/threads", json={"thread_id": thread})

    answers = await asyncio.gather(
        api.get(f"/threads/{thread}/history", params={"limit": limit}),
        api.post(f"/threads/{thread}/history", json={"limit": limit}),
    )

    assert [answer.status_code for answer in answers] == [422, 422]


async def test_an_untouched_thread_has_an_empty_state(api: httpx.AsyncClient, thread: str) -> None:
    await api.post("/threads", json={"thread_id": thread})

    state = (await api.get(f"/threads/{thread}/state")).json()

    assert (state["values"], state["next"], state["checkpoint_id"]) == ({}, [], None)
    assert state["checkpoint"]["thread_id"] == thread
    assert (await api.get(f"/threads/{thread}/state/unknown")).status_code == 404
    assert (await api.post(f"/threads/{thread}/history")).json() == []


async def test_a_run_from_a_checkpoint_that_is_not_there_is_refused(
    api: httpx.AsyncClient, scripted: ScriptedModel, thread: str
) -> None:
    await turn(api, scripted, thread, "one")

    body = {"input": {"messages": ["two"]}, "checkpoint": {"checkpoint_id": "unknown"}}
    answer = await api.post(f"/threads/{thread}/runs", json=body)

    assert (answer.status_code, "unknown" in answer.json()["detail"]) == (404, True)
