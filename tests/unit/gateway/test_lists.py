"""Lists over HTTP: pages that say where the next begins, fields by name, states up to a size."""

import json
from typing import Any

import httpx
from support.model_server import ScriptedModel, text

NEXT = "X-Pagination-Next"


async def made(api: httpx.AsyncClient, group: str, count: int) -> list[str]:
    """Return the names of new threads, the newest first."""
    names = [f"{group[:20]}-{number}" for number in range(count)]
    for name in names:
        body = {"thread_id": name, "metadata": {"group": group}}
        assert (await api.post("/threads", json=body)).status_code == 200
    return names[::-1]


async def test_a_page_of_threads_says_where_the_next_begins(api: httpx.AsyncClient, thread: str) -> None:
    names = await made(api, thread, 3)
    body = {"metadata": {"group": thread}, "limit": 2}

    first = await api.post("/threads/search", json=body)
    last = await api.post("/threads/search", json={**body, "offset": int(first.headers[NEXT])})
    exact = await api.post("/threads/search", json={**body, "limit": 3})

    pages = [*first.json(), *last.json()]
    assert [found["thread_id"] for found in pages] == names
    assert NEXT not in last.headers
    assert NEXT not in exact.headers


async def test_threads_are_found_by_their_graph(api: httpx.AsyncClient, thread: str) -> None:
    names = await made(api, thread, 2)

    async def found(graph: str) -> list[str]:
        body = {"metadata": {"group": thread, "graph_id": graph}}
        count = (await api.post("/threads/count", json=body)).json()
        threads = [entry["thread_id"] for entry in (await api.post("/threads/search", json=body)).json()]
        assert count == len(threads)
        return threads

    assert await found("lead_agent") == names
    assert await found("other") == []


async def test_a_page_of_assistants_says_where_the_next_begins(api: httpx.AsyncClient, thread: str) -> None:
    for number in range(2):
        body = {"graph_id": "lead_agent", "name": f"{thread} {number}", "metadata": {"group": thread}}
        assert (await api.post("/assistants", json=body)).status_code == 200
    body = {"metadata": {"group": thread}, "limit": 1}

    first = await api.post("/assistants/search", json=body)
    last = await api.post("/assistants/search", json={**body, "offset": int(first.headers[NEXT])})

    assert [found["name"] for found in (*first.json(), *last.json())] == [f"{thread} 1", f"{thread} 0"]
    assert NEXT not in last.headers


async def test_fields_of_runs_are_named_in_each_clients_way(
    api: httpx.AsyncClient, scripted: ScriptedModel, thread: str
) -> None:
    scripted.on(thread, text("hello"))
    body = {"input": {"messages": [{"role": "user", "content": thread}]}}
    await api.post(f"/threads/{thread}/runs/wait", json=body)
    fields = ["run_id", "status"]

    python = await api.get(f"/threads/{thread}/runs", params={"select": fields})
    javascript = await api.get(f"/threads/{thread}/runs", params={"select": json.dumps(fields)})
    unknown = await api.get(f"/threads/{thread}/runs", params={"select": "colour"})

    assert [set(run) for run in python.json()] == [set(fields)]
    assert javascript.json() == python.json()
    assert (unknown.status_code, "run_id" in unknown.json()["detail"]) == (400, True)


async def test_fields_that_there_are_not_are_refused(api: httpx.AsyncClient) -> None:
    for path in ("/threads/search", "/assistants/search", "/runs/crons/search"):
        answer = await api.post(path, json={"select": ["colour"]})
        assert answer.status_code == 422, path


async def test_a_list_of_long_threads_has_states_up_to_a_size_and_titles_behind_it(
    api: httpx.AsyncClient, thread: str
) -> None:
    names = await made(api, thread, 4)
    said = [{"role": "user", "content": "long " * 600_000}]
    for name in reversed(names):
        values = {"messages": said, "title": f"About {name}"}
        assert (await api.post(f"/threads/{name}/state", json={"values": values})).status_code == 200

    answer = await api.post("/threads/search", json={"metadata": {"group": thread}})

    found: list[dict[str, Any]] = answer.json()
    assert [entry["thread_id"] for entry in found] == names
    assert ["messages" in entry["values"] for entry in found] == [True, True, True, False]
    assert found[-1]["values"] == {"title": f"About {names[-1]}"}


async def test_threads_that_are_gone_already_do_not_keep_others_from_being_pruned(
    api: httpx.AsyncClient, thread: str
) -> None:
    names = await made(api, thread, 2)

    body = {"thread_ids": ["gone", names[0]], "strategy": "keep_latest"}
    empty = await api.post("/threads/prune", json=body)
    for words in ("one", "two"):
        values = {"messages": [{"role": "user", "content": words}]}
        await api.post(f"/threads/{names[0]}/state", json={"values": values})
    kept = await api.post("/threads/prune", json=body)
    nothing = await api.post("/threads/prune", json=body)
    deleted = await api.post("/threads/prune", json={"thread_ids": [*names, "gone", names[0]]})
    again = await api.post("/threads/prune", json={"thread_ids": names})

    assert [answer.json()["pruned_count"] for answer in (empty, kept, nothing)] == [0, 1, 0]
    assert (kept.json(), deleted.json(), again.json()) == (
        {"pruned_count": 1},
        {"pruned_count": 2},
        {"pruned_count": 0},
    )
    assert (await api.get(f"/threads/{names[0]}")).status_code == 404
