"""Collects statistics during a run: tokens, messages, its title, and whether it waits for an answer."""

from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage

from deerflow.domain import ModelUse, TokenUse
from deerflow.runtime.spending import Prices, costs_of, plus


class RunStats:
    """Aggregates the `updates` chunks of one run."""

    def __init__(self) -> None:
        self._lead = self._subagents = self._beside = self._calls = 0
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
        self._beside += self._count(model_name or self._model_name, usage)

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
            middleware_tokens=self._beside,
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
