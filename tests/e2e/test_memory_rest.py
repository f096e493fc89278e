"""The memory over HTTP: every route, and what is refused."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from support.gateway import Gateway, running_gateway, write_config

NO_MODEL = "http://127.0.0.1:9/v1"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with running_gateway(tmp_path_factory.mktemp("home"), NO_MODEL, memory={"max_facts": 10}) as running:
        yield running


@pytest.fixture
async def api(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway.client() as client:
        await client.delete("/memory")
        yield client


async def add(api: httpx.AsyncClient, content: str, **more: Any) -> dict[str, Any]:
    response = await api.post("/memory/facts", json={"content": content, **more})
    assert response.status_code == 200, response.text
    return dict(response.json())


async def test_an_empty_memory_has_all_its_parts(api: httpx.AsyncClient) -> None:
    memory = (await api.get("/memory")).json()

    empty = {"summary": "", "updatedAt": ""}
    assert memory["version"] == "1.0"
    assert memory["facts"] == []
    assert memory["user"] == dict.fromkeys(("workContext", "personalContext", "topOfMind"), empty)
    assert memory["history"] == dict.fromkeys(("recentMonths", "earlierContext", "longTermBackground"), empty)


async def test_facts_are_added_changed_and_deleted(api: httpx.AsyncClient) -> None:
    (fact,) = (await add(api, "  Likes\n tea. ", category="preference", confidence=0.9))["facts"]
    changed = await api.patch(f"/memory/facts/{fact['id']}", json={"content": "Likes coffee."})
    deleted = await api.delete(f"/memory/facts/{fact['id']}")

    assert fact["content"] == "Likes tea."
    assert (fact["category"], fact["confidence"], fact["source"]) == ("preference", 0.9, "manual")
    assert fact["createdAt"].endswith("Z")
    assert changed.json()["facts"] == [{**fact, "content": "Likes coffee."}]
    assert deleted.json()["facts"] == []
    assert deleted.json()["revision"] > changed.json()["revision"]
    assert deleted.json()["lastUpdated"] >= changed.json()["lastUpdated"]


async def test_what_is_absent_has_its_default(api: httpx.AsyncClient) -> None:
    (fact,) = (await add(api, "Likes tea."))["facts"]

    assert (fact["category"], fact["confidence"]) == ("context", 0.5)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"content": None}, 422),
        ({"content": ["x"]}, 422),
        ({"content": "x" * 1001}, 422),
        ({"content": "x", "confidence": 1.01}, 422),
        ({"content": "x", "confidence": -0.1}, 422),
        ({"content": "x", "category": "c" * 41}, 422),
        ({"content": " \n\u202e"}, 400),
        ({"content": "token: abcdefgh12345678"}, 400),
    ],
)
async def test_a_wrong_fact_is_refused(api: httpx.AsyncClient, body: dict[str, Any], status: int) -> None:
    response = await api.post("/memory/facts", json=body)

    assert response.status_code == status
    assert (await api.get("/memory")).json()["facts"] == []


async def test_numbers_that_are_none_are_refused(api: httpx.AsyncClient) -> None:
    headers = {"content-type": "application/json"}

    response = await api.post("/memory/facts", content='{"content": "x", "confidence": NaN}', headers=headers)

    assert response.status_code == 422


async def test_the_same_fact_twice_is_a_conflict_and_so_is_one_too_many(api: httpx.AsyncClient) -> None:
    await add(api, "Likes tea.")
    again = await api.post("/memory/facts", json={"content": "likes TEA"})
    for number in range(9):
        await add(api, f"Fact {number}.")
    full = await api.post("/memory/facts", json={"content": "One more."})

    assert (again.status_code, full.status_code) == (409, 409)
    assert "remembered already" in again.json()["detail"]
    assert "max_facts" in full.json()["detail"]


async def test_an_unknown_fact_is_not_found_and_a_change_of_nothing_is_refused(
    api: httpx.AsyncClient,
) -> None:
    (fact,) = (await add(api, "Likes tea."))["facts"]

    assert (await api.patch("/memory/facts/fact_none", json={"content": "x"})).status_code == 404
    assert (await api.delete("/memory/facts/fact_none")).status_code == 404
    assert (await api.patch(f"/memory/facts/{fact['id']}", json={})).status_code == 400
    assert (await api.patch(f"/memory/facts/{fact['id']}", json={"content": ""})).status_code == 422


async def test_an_export_can_be_imported_and_takes_the_place_of_all(api: httpx.AsyncClient) -> None:
    await add(api, "Likes tea.")
    exported = (await api.get("/memory/export")).json()
    exported["user"]["workContext"] = {"summary": "Bakes.", "updatedAt": "2026-01-01T00:00:00Z"}
    await api.delete("/memory")
    await add(api, "Something else.")

    imported = await api.post("/memory/import", json=exported)

    assert imported.status_code == 200
    found = (await api.get("/memory")).json()
    assert (found["facts"], found["user"]) == (exported["facts"], exported["user"])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"facts": [{"content": "no id"}]}, 422),
        ({"facts": [{"id": "../x", "content": "x"}]}, 422),
        ({"facts": [{"id": "a", "content": "x"}] * 20_001}, 422),
        ({"facts": [{"id": f"a{n}", "content": f"x{n}"} for n in range(11)]}, 400),
        ({"facts": [{"id": "a", "content": "x"}, {"id": "a", "content": "y"}]}, 400),
        ({"facts": [{"id": "a", "content": ""}], "user": 3}, 422),
        ({"user": {"workContext": {"summary": "x" * 4001}}}, 422),
        ([], 422),
    ],
)
async def test_a_file_that_is_no_memory_changes_nothing(
    api: httpx.AsyncClient, body: Any, status: int
) -> None:
    await add(api, "Likes tea.")

    response = await api.post("/memory/import", json=body)

    assert response.status_code == status
    assert [fact["content"] for fact in (await api.get("/memory")).json()["facts"]] == ["Likes tea."]


async def test_many_at_once_lose_nothing(api: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(
        *(api.post("/memory/facts", json={"content": f"Fact {number % 8}."}) for number in range(24))
    )

    assert sorted(answer.status_code for answer in answers) == [200] * 8 + [409] * 16
    assert len((await api.get("/memory")).json()["facts"]) == 8


async def test_settings_are_told(api: httpx.AsyncClient) -> None:
    status = (await api.get("/memory/status")).json()
    config = (await api.get("/memory/config")).json()
    reloaded = await api.post("/memory/reload")

    assert status["config"] == config
    assert set(status["data"]) == set(reloaded.json())
    assert (config["enabled"], config["mode"], config["manager_class"]) == (True, "middleware", "deermem")
    assert config["backend_config"]["max_facts"] == 10


async def test_a_memory_that_is_switched_out_says_so(api: httpx.AsyncClient, gateway: Gateway) -> None:
    write_config(gateway.home, NO_MODEL, memory={"manager_class": "noop"})
    try:
        added = await api.post("/memory/facts", json={"content": "x"})
        read = await api.get("/memory")
    finally:
        write_config(gateway.home, NO_MODEL, memory={"max_facts": 10})

    assert (added.status_code, read.status_code) == (501, 200)
    assert "noop" in added.json()["detail"]


async def test_an_agents_name_must_be_one(api: httpx.AsyncClient) -> None:
    assert (await api.get("/memory", params={"agent_name": "../x"})).status_code == 422
    assert (await api.get("/memory", params={"agent_name": "Cook"})).json()["facts"] == []


async def test_the_routes_are_under_langgraphs_prefix_too(api: httpx.AsyncClient) -> None:
    await add(api, "Likes tea.")

    assert len((await api.get("/langgraph/memory")).json()["facts"]) == 1


async def test_what_is_recalled_for_a_question_is_shown_with_score_source_and_date(
    api: httpx.AsyncClient,
) -> None:
    await add(api, "Has a dog called Bruno.", confidence=0.9)
    await add(api, "Lives in Bergen.")

    found = (await api.get("/memory/recall", params={"query": "What is my dog called?"})).json()
    other = (await api.get("/memory/recall", params={"query": "dog", "agent_name": "cook"})).json()
    chat = (await api.get("/memory/recall", params={"query": "Hello, how are you?"})).json()

    (item,) = found["items"]
    assert found["query"] == "What is my dog called?"
    assert (item["kind"], item["content"], item["source"]) == ("fact", "Has a dog called Bruno.", "manual")
    assert 0 < item["score"] <= 1
    assert item["createdAt"].endswith("Z")
    assert (other["items"], chat["items"]) == ([], [])
    assert (await api.get("/memory/recall")).status_code == 422
    assert (await api.get("/memory/recall", params={"query": "x", "limit": 0})).status_code == 422


async def test_what_a_newer_fact_replaced_is_exported_and_imported(api: httpx.AsyncClient) -> None:
    old = {
        "id": "f0",
        "content": "Lives in Bergen.",
        "validUntil": "2026-01-01T00:00:00Z",
        "replacedBy": "f1",
    }
    file = {"facts": [{"id": "f1", "content": "Lives in Oslo."}], "replacedFacts": [old]}

    imported = (await api.post("/memory/import", json=file)).json()

    assert [(one["content"], one["replacedBy"]) for one in imported["replacedFacts"]] == [
        ("Lives in Bergen.", "f1")
    ]
    assert (await api.get("/memory/export")).json() == imported
    found = (await api.get("/memory/recall", params={"query": "Bergen"})).json()
    assert found["items"] == []
    assert "replacedFacts" not in (await api.delete("/memory/facts/f1")).json()
