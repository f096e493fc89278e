"""Keeps count while a run goes by: tokens, messages, its title, and whether it waits for an answer."""

from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage

from deerflow.domain import TokenUse


class Tally:
    """Adds up what the updates of one run say."""

    def __init__(self) -> None:
        self._input = self._output = self._lead = self._subagents = self._calls = 0
        self.message_count = 0
        self.title: str | None = None
        self.is_waiting = False
        """The graph stopped to ask somebody."""
        self.first_token_at: float | None = None
        """When the agent began to speak, on the clock of `time.monotonic`."""

    def add(self, update: Mapping[str, Any]) -> None:
        """Take in one `updates` chunk of the lead agent."""
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
            input_tokens=self._input,
            output_tokens=self._output,
            lead_tokens=self._lead,
            subagent_tokens=self._subagents,
            llm_calls=self._calls,
        )

    def _add_message(self, message: BaseMessage) -> None:
        self.message_count += 1
        if isinstance(message, AIMessage):
            self._calls += 1
            if message.usage_metadata:
                self._lead += self._spend(message.usage_metadata)
        else:  # a result, or the news of a background task
            usage = message.additional_kwargs.get("subagent_token_usage")
            if isinstance(usage, Mapping):
                self._subagents += self._spend(usage)

    def _spend(self, usage: Mapping[str, Any]) -> int:
        spent_in, spent_out = int(usage.get("input_tokens") or 0), int(usage.get("output_tokens") or 0)
        self._input += spent_in
        self._output += spent_out
        return spent_in + spent_out


def _messages(values: Mapping[str, Any]) -> Iterator[BaseMessage]:
    found = values.get("messages")
    for message in found if isinstance(found, list) else [found]:
        if isinstance(message, BaseMessage) and not isinstance(message, RemoveMessage):
            yield message
