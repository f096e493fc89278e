"""Collect the messages of a sub-agent while it runs, so that its findings survive an early stop."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

MAX_TOOL_CHARS = 2000
MAX_TOOL_RESULTS = 5
COUNTED = ("input_tokens", "output_tokens", "total_tokens")


class Progress:
    """The messages of one task, in order and without duplicates."""

    def __init__(self, messages: Iterable[AnyMessage] = ()) -> None:
        self._messages: dict[str, AIMessage | ToolMessage] = {}
        self._answers: dict[str, AIMessage] = {}
        self._draft: list[str] = []
        self._beside: list[Mapping[str, Any]] = []
        for message in messages:
            self.add(message)

    def add(self, message: AnyMessage) -> bool:
        """Add a message; return whether it is a new one of the sub-agent or its tools."""
        if not isinstance(message, AIMessage | ToolMessage):
            return False
        key = _key(message)
        is_new = key not in self._messages
        self._messages[key] = message
        if isinstance(message, AIMessage):
            self._answers[key] = message
            self._draft.clear()
        return is_new

    def hear(self, words: str) -> None:
        """Add streamed text of an answer that is not complete yet."""
        self._draft.append(words)

    def spend(self, usage: Mapping[str, Any]) -> None:
        """Count tokens used outside of the conversation, such as for a summary."""
        self._beside.append(usage)

    @property
    def messages(self) -> tuple[AIMessage | ToolMessage, ...]:
        """The messages of the sub-agent and its tools."""
        return tuple(self._messages.values())

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self._messages)

    @property
    def answers(self) -> tuple[AIMessage, ...]:
        """The model's answers."""
        return tuple(self._answers.values())

    @property
    def turns(self) -> int:
        """Number of model answers."""
        return len(self._answers)

    @property
    def wants_tools(self) -> bool:
        """Whether the last answer has tool calls, so that the task is not done."""
        return bool(self._answers and next(reversed(self._answers.values())).tool_calls)

    @property
    def usage(self) -> dict[str, int] | None:
        """Tokens used so far; None when the provider reports none."""
        counted = [answer.usage_metadata for answer in self._answers.values() if answer.usage_metadata]
        spent: list[Mapping[str, Any]] = [*counted, *self._beside]
        if not spent:
            return None
        return {name: sum(usage.get(name) or 0 for usage in spent) for name in COUNTED}

    def final_text(self) -> str:
        """Return the text of the last answer, or all findings when it has none."""
        answers = self.answers
        return (answers[-1].text.strip() if answers else "") or self.findings()

    def findings(self) -> str:
        """Return the findings so far: the text of all answers, or without any the last tool results."""
        texts = [*(answer.text for answer in self.answers), "".join(self._draft)]
        said = [text.strip() for text in texts if text.strip()]
        if said:
            return "\n\n".join(said)
        results = [message for message in self._messages.values() if isinstance(message, ToolMessage)]
        return "\n\n".join(
            f"[{result.name or 'tool'}] {result.text.strip()[:MAX_TOOL_CHARS]}"
            for result in results[-MAX_TOOL_RESULTS:]
            if result.text.strip()
        )


def _key(message: AIMessage | ToolMessage) -> str:
    """Return the key by which a repeated message is recognized."""
    if message.id:
        return message.id
    if isinstance(message, ToolMessage):
        return f"result {message.tool_call_id}"
    calls = [call["id"] for call in message.tool_calls]
    return hashlib.sha256(f"{message.text}{calls}".encode()).hexdigest()
