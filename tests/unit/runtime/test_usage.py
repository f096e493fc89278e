"""Token usage and cost of runs and of calls outside them."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.store.memory import InMemoryStore

from deerflow.config import ModelSettings, PricingSettings
from deerflow.domain import ModelUse, RunRecord, RunRequest, RunStatus, TokenUse
from deerflow.runtime.usage import RunStats, SideUsage, cost_out, costs_of, plus, prices_of, thread_usage


def answer(spent_in: int, spent_out: int) -> AIMessage:
    total = spent_in + spent_out
    return AIMessage(
        "x", usage_metadata={"input_tokens": spent_in, "output_tokens": spent_out, "total_tokens": total}
    )


def test_tokens_are_added_up_by_who_spent_them() -> None:
    stats = RunStats()
    by_subagent = {"subagent_token_usage": {"input_tokens": 100, "output_tokens": None}}

    stats.add({"model": {"messages": [answer(10, 2)]}})
    stats.add({"tools": {"messages": [ToolMessage("x", tool_call_id="1", additional_kwargs=by_subagent)]}})
    stats.add({"model": {"messages": answer(20, 3)}})

    use = stats.usage
    assert (use.input_tokens, use.output_tokens, use.total_tokens) == (130, 5, 135)
    assert (use.lead_tokens, use.subagent_tokens, use.llm_calls) == (35, 100, 2)
    assert stats.message_count == 3


def test_the_last_title_counts_and_an_interrupt_is_a_question() -> None:
    stats = RunStats()

    stats.add({"start": {"title": "first"}, "model": {"title": None}})
    stats.add({"model": {"title": "second", "messages": [HumanMessage("x")]}})
    stats.add({"__interrupt__": ("?",)})

    assert (stats.title, stats.is_waiting, stats.usage.llm_calls) == ("second", True, 0)


def test_updates_of_any_shape_are_taken() -> None:
    stats = RunStats()
    strange: list[dict[str, Any]] = [
        {},
        {"a": None},
        {"b": []},
        {"c": {"messages": None}},
        {"d": {"messages": ["x"]}},
    ]

    for update in strange:
        stats.add(update)

    assert (stats.message_count, stats.title, stats.is_waiting) == (0, None, False)


EURO = PricingSettings(currency="EUR", input_per_million=10, output_per_million=100)
DOLLAR = PricingSettings(currency="USD", input_per_million=1, input_cache_hit_per_million=0)


def run(usage: TokenUse) -> RunRecord:
    now = datetime.now(UTC)
    return RunRecord("r", RunRequest("t"), RunStatus.SUCCESS, now, now, usage=usage)


@pytest.mark.parametrize(
    ("use", "price", "cost"),
    [
        (ModelUse(1_000_000, 0), EURO, 10),
        (ModelUse(0, 1_000_000), EURO, 100),
        (ModelUse(1_000_000, 0, cache_read_tokens=400_000), EURO, 10),
        (ModelUse(1_000_000, 5, cache_read_tokens=400_000), DOLLAR, 0.6),
        (ModelUse(10, 0, cache_read_tokens=10**9), DOLLAR, 0),
        (ModelUse(10, 10), PricingSettings(), 0),
    ],
)
def test_a_price_counts_what_was_read_cached_and_written(
    use: ModelUse, price: PricingSettings, cost: float
) -> None:
    assert costs_of({"m": use}, {"m": price}) == {price.currency: pytest.approx(cost)}


def test_currencies_are_not_mixed_and_models_without_price_cost_nothing_known() -> None:
    costs = costs_of(
        {"a": ModelUse(100, 0), "b": ModelUse(100, 0), "c": ModelUse(5, 5)}, {"a": EURO, "b": DOLLAR}
    )

    shown = cost_out(costs)

    assert set(costs) == {"EUR", "USD"}
    assert (shown["cost"], shown["currency"], set(shown["costs"])) == (None, None, {"EUR", "USD"})
    assert cost_out({}) == {"cost": None, "currency": None, "costs": {}}
    assert prices_of([ModelSettings(name="a", use="x:Y", model="a", pricing=EURO)]) == {"a": EURO}


@pytest.mark.parametrize(
    "usage",
    [{}, {"input_tokens": None}, {"input_tokens": "many"}, {"input_tokens": -5, "input_token_details": 7}],
)
def test_counts_that_make_no_sense_count_nothing(usage: dict[str, Any]) -> None:
    assert plus(ModelUse(), usage) == ModelUse(calls=1)


async def test_calls_of_all_processes_are_added_up_and_forgotten_with_the_thread() -> None:
    store = InMemoryStore()
    processes = [SideUsage(store) for _ in range(3)]
    usage = {"input_tokens": 100, "output_tokens": 10}

    await asyncio.gather(*(each.add("t", "m", usage, {"m": EURO}) for each in processes * 4))
    await processes[0].add("other", "m", usage, {})
    await processes[0].add("t", "m", {}, {})
    total = await processes[0].of_thread("t")
    await processes[1].forget("t")

    assert (total.input_tokens, total.output_tokens, total.middleware_tokens) == (1200, 120, 1320)
    assert total.models["m"] == ModelUse(1200, 120, calls=12)
    assert total.costs == {"EUR": pytest.approx(12 * (100 * 10 + 10 * 100) / 1e6)}
    assert (await processes[2].of_thread("t")) == TokenUse()
    assert (await processes[2].of_thread("other")).input_tokens == 100


def test_a_threads_total_has_runs_and_what_was_spent_beside_them() -> None:
    spent = TokenUse(10, 5, lead_tokens=15, models={"m": ModelUse(10, 5, calls=1)}, costs={"EUR": 0.5})
    beside = TokenUse(4, 1, middleware_tokens=5, models={"m": ModelUse(4, 1, calls=1)}, costs={"EUR": 0.1})

    found = thread_usage([run(spent), run(spent), run(TokenUse())], beside)

    assert (found["total_tokens"], found["total_runs"]) == (35, 3)
    assert found["by_model"]["m"] | {"tokens": 35, "runs": 2, "calls": 3} == found["by_model"]["m"]
    assert found["by_caller"] == {"lead_agent": 30, "subagent": 0, "middleware": 5}
    assert (found["total_cost"], found["currency"]) == (pytest.approx(1.1), "EUR")
