"""Token usage and cost: of one run, by model and by caller, and of model calls outside runs."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage
from langgraph.store.base import BaseStore

from deerflow.config import ModelSettings, PricingSettings
from deerflow.domain import ModelUse, RunRecord, TokenUse, new_id

MILLION = 1_000_000
Prices = Mapping[str, PricingSettings]


class RunStats:
    """Aggregates the `updates` chunks of one run."""

    def __init__(self) -> None:
        self._lead = self._subagents = self._side_tokens = self._calls = 0
        self._models: dict[str, ModelUse] = {}
        self._model_name = ""
        self._prices: Prices = {}
        self.message_count = 0
        self.title: str | None = None
        self.is_waiting = False
        """The graph was interrupted."""
        self.is_asking = False
        """The last message is a question to the user."""
        self.first_token_at: float | None = None
        """When the first token arrived, by `time.monotonic`."""

    def begin(self, *, model_name: str, prices: Prices) -> None:
        """Set the lead agent's model and the prices of models."""
        self._model_name = model_name
        self._prices = prices

    def spend(self, model_name: str | None, usage: Mapping[str, Any]) -> None:
        """Count a model call outside the conversation."""
        self._calls += 1
        self._side_tokens += self._count(model_name or self._model_name, usage)

    def add(self, update: Mapping[str, Any]) -> None:
        """Process one `updates` chunk of the lead agent."""
        for node, values in update.items():
            if node == "__interrupt__":
                self.is_waiting = True
            elif isinstance(values, Mapping):
                self.title = values.get("title") or self.title
                for message in _messages(values):
                    self._add_message(message)

    @property
    def usage(self) -> TokenUse:
        return TokenUse(
            input_tokens=sum(use.input_tokens for use in self._models.values()),
            output_tokens=sum(use.output_tokens for use in self._models.values()),
            lead_tokens=self._lead,
            subagent_tokens=self._subagents,
            llm_calls=self._calls,
            middleware_tokens=self._side_tokens,
            models={name: use for name, use in self._models.items() if name},
            costs=costs_of(self._models, self._prices),
        )

    def _add_message(self, message: BaseMessage) -> None:
        self.message_count += 1
        self.is_asking = is_question(message)
        if isinstance(message, AIMessage):
            self._calls += 1
            if message.usage_metadata:
                self._lead += self._count(self._model_name, message.usage_metadata)
        else:  # a tool result, or the news of a background task
            usage = message.additional_kwargs.get("subagent_token_usage")
            if isinstance(usage, Mapping):
                name = message.additional_kwargs.get("subagent_model_name")
                self._subagents += self._count(name if isinstance(name, str) else self._model_name, usage)

    def _count(self, model_name: str, usage: Mapping[str, Any]) -> int:
        before = self._models.get(model_name, ModelUse())
        after = self._models[model_name] = plus(before, usage)
        return after.input_tokens - before.input_tokens + after.output_tokens - before.output_tokens


def is_question(message: BaseMessage) -> bool:
    """Return whether a message is a question to the user."""
    artifact = getattr(message, "artifact", None)
    return isinstance(artifact, Mapping) and "human_input" in artifact


def _messages(values: Mapping[str, Any]) -> Iterator[BaseMessage]:
    found = values.get("messages")
    for message in found if isinstance(found, list) else [found]:
        if isinstance(message, BaseMessage) and not isinstance(message, RemoveMessage):
            yield message


def prices_of(models: Iterable[ModelSettings]) -> dict[str, PricingSettings]:
    """Return the prices of the models that have some, by name."""
    return {model.name: model.pricing for model in models if model.pricing is not None}


def costs_of(models: Mapping[str, ModelUse], prices: Prices) -> dict[str, float]:
    """Return the cost of model usage, by currency; models without prices are left out."""
    costs: dict[str, float] = {}
    for name, use in models.items():
        if (price := prices.get(name)) is not None:
            costs[price.currency] = costs.get(price.currency, 0.0) + _cost(use, price)
    return costs


def plus(use: ModelUse, usage: Mapping[str, Any], *, calls: int = 1) -> ModelUse:
    """Return `use` plus the usage reported by a provider."""
    details = usage.get("input_token_details")
    cached = details.get("cache_read") if isinstance(details, Mapping) else 0
    return ModelUse(
        input_tokens=use.input_tokens + _number(usage.get("input_tokens")),
        output_tokens=use.output_tokens + _number(usage.get("output_tokens")),
        cache_read_tokens=use.cache_read_tokens + _number(cached),
        calls=use.calls + calls,
    )


def cost_out(costs: Mapping[str, float]) -> dict[str, Any]:
    """Return costs as clients see them: `cost` only for a single currency, `costs` for all."""
    rounded = {currency: round(amount, 8) for currency, amount in costs.items()}
    (currency, cost) = next(iter(rounded.items())) if len(rounded) == 1 else (None, None)
    return {"cost": cost, "currency": currency, "costs": rounded}


def thread_usage(runs: Iterable[RunRecord], side: TokenUse) -> dict[str, Any]:
    """Return the total usage of a thread."""
    uses = [run.usage for run in runs]
    total = sum((*uses, side), TokenUse())
    costs = cost_out(total.costs)
    return {
        "total_tokens": total.total_tokens,
        "total_input_tokens": total.input_tokens,
        "total_output_tokens": total.output_tokens,
        "total_runs": len(uses),
        "by_model": {
            name: {
                "tokens": use.input_tokens + use.output_tokens,
                "runs": sum(name in each.models for each in uses),
                **asdict(use),
            }
            for name, use in total.models.items()
        },
        "by_caller": {
            "lead_agent": total.lead_tokens,
            "subagent": total.subagent_tokens,
            "middleware": total.middleware_tokens,
        },
        "total_cost": costs["cost"],
        "currency": costs["currency"],
        "total_costs": costs["costs"],
    }


class SideUsage:
    """Counts the usage of model calls outside a thread's runs, such as suggestions.

    Each process has its own store item, so that no two processes write the same one.
    """

    def __init__(self, store: BaseStore) -> None:
        self._store = store
        self._key = new_id()
        self._adding = asyncio.Lock()

    async def add(self, thread_id: str, model_name: str, usage: Mapping[str, Any], prices: Prices) -> None:
        """Count one call."""
        if not usage:
            return
        async with self._adding:
            item = await self._store.aget(_namespace(thread_id), self._key)
            before = _use_of(item.value) if item is not None else TokenUse()
            spent = plus(ModelUse(), usage)
            call = TokenUse(
                input_tokens=spent.input_tokens,
                output_tokens=spent.output_tokens,
                middleware_tokens=spent.input_tokens + spent.output_tokens,
                llm_calls=1,
                models={model_name: spent},
                costs=costs_of({model_name: spent}, prices),
            )
            after = before + call
            await self._store.aput(_namespace(thread_id), self._key, asdict(after), index=False)

    async def of_thread(self, thread_id: str) -> TokenUse:
        """Return the usage outside a thread's runs, summed over all processes."""
        items = await self._store.asearch(_namespace(thread_id), limit=1000)
        return sum((_use_of(item.value) for item in items), TokenUse())

    async def forget(self, thread_id: str) -> None:
        """Delete the usage of a deleted thread."""
        for item in await self._store.asearch(_namespace(thread_id), limit=1000):
            await self._store.adelete(_namespace(thread_id), item.key)


def _namespace(thread_id: str) -> tuple[str, ...]:
    return ("spending", thread_id)


def _use_of(value: Mapping[str, Any]) -> TokenUse:
    models = {name: ModelUse(**use) for name, use in value.get("models", {}).items()}
    return TokenUse(**{**value, "models": models})


def _cost(use: ModelUse, price: PricingSettings) -> float:
    cached = min(use.cache_read_tokens, use.input_tokens)
    full = price.input_per_million or 0.0
    hit = full if price.input_cache_hit_per_million is None else price.input_cache_hit_per_million
    read = (use.input_tokens - cached) * full + cached * hit
    return (read + use.output_tokens * (price.output_per_million or 0.0)) / MILLION


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and value > 0 else 0
