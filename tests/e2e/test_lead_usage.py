"""Tokens and costs of runs and threads, titles by template, suggestions and better wordings, over HTTP."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from support.gateway import Gateway, model_entry, running_gateway, write_config
from support.model_server import ScriptedModel, call, silence, status, text, usage
from support.shared import fresh_model

PRICES = {
    "currency": "EUR",
    "input_per_million": 10,
    "output_per_million": 100,
    "input_cache_hit_per_million": 1,
}
CALLS = {"retry_base_delay_ms": 1, "retry_cap_delay_ms": 1}


def models(server: ScriptedModel) -> list[dict[str, Any]]:
    cheap = {**PRICES, "input_per_million": 1}
    return [
        model_entry(server.base_url, "big", model="big-1", pricing=PRICES, context_window=10_000),
        model_entry(server.base_url, "small", model="small-1", pricing=cheap),
        model_entry(server.base_url, "free", model="free-1"),
    ]


model = fresh_model


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, server: ScriptedModel) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("home")
    with running_gateway(home, server.base_url, models=models(server), llm_call=CALLS) as running:
        yield running


@pytest.fixture
def configured(gateway: Gateway, server: ScriptedModel) -> Iterator[Any]:
    def change(**sections: Any) -> None:
        write_config(
            gateway.home, server.base_url, **{"models": models(server), "llm_call": CALLS, **sections}
        )

    yield change
    change()


async def say(api: httpx.AsyncClient, thread: str, words: str = "go", **context: Any) -> dict[str, Any]:
    body = {"input": {"messages": [{"role": "user", "content": words}]}, "context": context}
    answer = await api.post(f"/threads/{thread}/runs/wait", json=body)
    assert answer.status_code == 200, answer.text
    values: dict[str, Any] = answer.json()
    return values


async def spent(api: httpx.AsyncClient, thread: str) -> dict[str, Any]:
    answer = await api.get(f"/threads/{thread}/token-usage")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def last_run(api: httpx.AsyncClient, thread: str) -> dict[str, Any]:
    run: dict[str, Any] = (await api.get(f"/threads/{thread}/runs")).json()[0]
    return run


async def test_a_run_says_what_it_spent_and_what_that_cost(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str
) -> None:
    cached = {"prompt_tokens_details": {"cached_tokens": 400}}
    model.will_say(text("Hello.") + usage(1000, 50, **cached))

    await say(api, thread)
    run = await last_run(api, thread)
    found = await spent(api, thread)

    cost = (600 * 10 + 400 * 1 + 50 * 100) / 1e6
    assert (run["cost"], run["currency"], run["costs"]) == (
        pytest.approx(cost),
        "EUR",
        {"EUR": pytest.approx(cost)},
    )
    assert (found["total_tokens"], found["total_input_tokens"], found["total_output_tokens"]) == (
        1050,
        1000,
        50,
    )
    assert found["by_model"]["big"] | {"runs": 1, "tokens": 1050} == found["by_model"]["big"]
    assert found["by_model"]["big"]["cache_read_tokens"] == 400
    assert found["by_caller"] == {"lead_agent": 1050, "subagent": 0, "middleware": 0}
    assert found["context_usage"] == {"token_count": 1050, "max_context_tokens": 10_000, "percentage": 10.5}
    assert (found["total_cost"], found["currency"], found["total_runs"]) == (pytest.approx(cost), "EUR", 1)


async def test_sub_agents_and_titles_are_counted_by_who_and_which_model(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str, configured: Any
) -> None:
    configured(title={"model_name": "small"}, subagents={"agents": {"general-purpose": {"model": "free"}}})
    task = call("task", description="part", prompt="the part", subagent_type="general-purpose")
    model.on("the part", text("Found.") + usage(100, 10))
    model.on("Write a title", text("A title") + usage(30, 3))
    model.will_say(task + usage(200, 20), text("Done.") + usage(300, 30))

    values = await say(api, thread, subagent_enabled=True)
    found = await spent(api, thread)
    run = await last_run(api, thread)

    assert values["title"] == "A title"
    assert found["by_caller"] == {"lead_agent": 550, "subagent": 110, "middleware": 33}
    assert {name: row["tokens"] for name, row in found["by_model"].items()} == {
        "big": 550,
        "free": 110,
        "small": 33,
    }
    assert (run["middleware_tokens"], run["subagent_tokens"], run["total_tokens"]) == (33, 110, 693)
    assert run["cost"] == pytest.approx((500 * 10 + 50 * 100 + 30 * 1 + 3 * 100) / 1e6)


async def test_a_summary_is_counted_as_middleware(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str, configured: Any
) -> None:
    configured(
        summarization={"trigger": {"type": "messages", "value": 3}, "keep": {"type": "messages", "value": 1}}
    )
    model.on("older part of a conversation", text("They greeted.") + usage(70, 7))
    model.will_say(text("one") + usage(10, 1), text("two") + usage(20, 2))

    await say(api, thread, "first")
    await say(api, thread, "second")
    await api.post(f"/threads/{thread}/compact", json={"force": True})
    found = await spent(api, thread)

    assert found["by_caller"]["lead_agent"] == 33
    assert found["by_caller"]["middleware"] in (77, 154)
    assert found["total_tokens"] == found["by_caller"]["middleware"] + 33


async def test_a_thread_without_runs_has_spent_nothing_and_others_threads_are_not_there(
    api: httpx.AsyncClient, thread: str
) -> None:
    found = await spent(api, thread)

    assert (found["total_tokens"], found["by_model"], found["context_usage"]) == (0, {}, None)
    assert (found["total_cost"], found["currency"]) == (None, None)
    assert (await api.get("/threads/nowhere/token-usage")).status_code == 404


async def test_a_titles_template_says_what_the_model_is_asked(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str, configured: Any
) -> None:
    configured(title={"model_name": "small", "prompt_template": "Name {user_msg} in {max_words} words {x}"})
    model.on("Name 比较 {y} in 6 words {x}", text("Comparison"))
    model.will_say(text("Hello."))

    values = await say(api, thread, "比较 {y}")

    assert values["title"] == "Comparison"


async def test_suggestions_come_from_the_model_and_are_counted(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str
) -> None:
    model.will_say(text('```json\n["Why?", "How much?", "Why?", 7, "And then?"]\n```') + usage(40, 4))
    messages = [{"role": "user", "content": f"word {n}"} for n in range(9)]

    answer = await api.post(f"/threads/{thread}/suggestions", json={"messages": messages, "n": 3})
    found = await spent(api, thread)

    assert answer.json() == {"suggestions": ["Why?", "How much?", "And then?"]}
    asked = str(model.requests[0].messages[-1]["content"])
    assert [f"word {n}" in asked for n in (8, 3, 2)] == [True, True, False]
    assert found["by_caller"]["middleware"] == 44
    assert found["by_model"]["big"] | {"tokens": 44, "runs": 0} == found["by_model"]["big"]
    assert found["total_cost"] == pytest.approx((40 * 10 + 4 * 100) / 1e6)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("1. Why?\n2) How?\n- When?", []),
        ("I am sorry, but I cannot suggest anything.\nAsk me something else.", []),
        ('Here you are: ["Why?", "How?"]. Good luck!', ["Why?", "How?"]),
        ('<think>hm</think>["Why?"]', ["Why?"]),
        ("[broken", []),
        ("{}", []),
        ("[[1], {}, null]", []),
        ("", []),
        ("x" * 500, []),
    ],
)
async def test_only_a_json_array_of_short_lines_becomes_suggestions(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str, said: str, kept: list[str]
) -> None:
    model.will_say(text(said))
    body = {"messages": [{"role": "user", "content": "hi"}], "n": 2, "model_name": "small"}

    answer = await api.post(f"/threads/{thread}/suggestions", json=body)

    assert (answer.status_code, answer.json()["suggestions"]) == (200, kept)


async def test_suggestions_never_fail_hard(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str, configured: Any
) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    model.will_say(*[status(500)] * 3)

    failed = await api.post(f"/threads/{thread}/suggestions", json=body)
    unknown = await api.post(f"/threads/{thread}/suggestions", json={**body, "model_name": "gpt-99"})
    empty = await api.post(f"/threads/{thread}/suggestions", json={"messages": []})
    config = (await api.get("/suggestions/config")).json()
    configured(suggestions={"enabled": False, "max_suggestions": 1})
    off = await api.post(f"/threads/{thread}/suggestions", json=body)

    assert [each.json() for each in (failed, unknown, empty, off)] == [{"suggestions": []}] * 4
    assert config == {"enabled": True, "max_suggestions": 3}
    assert (await api.get("/suggestions/config")).json() == {"enabled": False, "max_suggestions": 1}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": "hi"},
        {"messages": [{"role": "user"}]},
        {"messages": [], "n": 0},
        {"messages": [], "n": 6},
    ],
)
async def test_malformed_wishes_for_suggestions_are_refused(
    api: httpx.AsyncClient, thread: str, body: dict[str, Any]
) -> None:
    assert (await api.post(f"/threads/{thread}/suggestions", json=body)).status_code == 422
    assert (await api.post("/threads/nowhere/suggestions", json={"messages": []})).status_code == 404


async def test_a_message_is_put_into_better_words(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str
) -> None:
    model.will_say(text("Compare {a} and {b}.") + usage(20, 2), text("Fine as it is."))

    better = await api.post(
        "/input-polish", json={"text": "cmp {a} {b}", "locale": "en-US", "thread_id": thread}
    )
    same = await api.post("/input-polish", json={"text": " Fine as it is. ", "thread_id": "not-there-yet"})
    found = await spent(api, thread)

    assert better.json() == {"rewritten_text": "Compare {a} and {b}.", "changed": True}
    assert same.json() == {"rewritten_text": "Fine as it is.", "changed": False}
    assert "<message>\ncmp {a} {b}\n</message>" in str(model.requests[0].messages[-1]["content"])
    assert found["by_caller"]["middleware"] == 22


async def test_what_cannot_be_polished_says_why(
    api: httpx.AsyncClient, model: ScriptedModel, configured: Any
) -> None:
    configured(input_polish={"max_chars": 10})
    model.will_say(*[status(500)] * 3)

    failed = await api.post("/input-polish", json={"text": "hi"})
    empty = await api.post("/input-polish", json={"text": "  "})
    long = await api.post("/input-polish", json={"text": "x" * 11})
    malformed = await api.post("/input-polish", json={"text": 7})
    configured(input_polish={"enabled": False})
    off = await api.post("/input-polish", json={"text": "hi"})

    assert [each.status_code for each in (failed, empty, long, malformed, off)] == [503, 400, 400, 422, 404]
    assert "input_polish.max_chars" in long.json()["detail"]
    assert "input_polish.enabled" in json.dumps(off.json())


async def test_a_slow_model_keeps_nobody_else_waiting(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str
) -> None:
    model.will_say(silence(after=0))
    body = {"messages": [{"role": "user", "content": "hi"}]}

    waiting = asyncio.create_task(api.post(f"/threads/{thread}/suggestions", json=body))
    await model.until(lambda server: server.in_flight == 1)
    other = await api.get("/suggestions/config")
    waiting.cancel()

    assert other.status_code == 200
