"""Gathers what a sub-agent says while it works, so that nothing is lost when it stops early."""

from collections.abc import Iterable

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

MAX_TOOL_CHARS = 2000
MAX_TOOL_RESULTS = 5


class Progress:
    """The messages of one task, in order and each once."""

    def __init__(self, messages: Iterable[AnyMessage] = ()) -> None:
        self._messages: dict[str, AIMessage | ToolMessage] = {}
        self._draft = ""
        for message in messages:
            self.add(message)

    def add(self, message: AnyMessage) -> bool:
        """Take a message up; tells whether it was a new one of the sub-agent or its tools."""
        if not isinstance(message, AIMessage | ToolMessage):
            return False
        key = message.id or f"#{len(self._messages)}"
        is_new = key not in self._messages
        self._messages[key] = message
        if isinstance(message, AIMessage):
            self._draft = ""
        return is_new

    def hear(self, words: str) -> None:
        """Take up words of an answer that is not complete yet."""
        self._draft += words

    @property
    def count(self) -> int:
        """How many messages there are."""
        return len(self._messages)

    @property
    def answers(self) -> tuple[AIMessage, ...]:
        """What the model said."""
        return tuple(message for message in self._messages.values() if isinstance(message, AIMessage))

    @property
    def turns(self) -> int:
        """How often the model has answered."""
        return len(self.answers)

    @property
    def wants_tools(self) -> bool:
        """Whether the last answer asks for tools, so that the work is not done."""
        answers = self.answers
        return bool(answers and answers[-1].tool_calls)

    @property
    def usage(self) -> dict[str, int] | None:
        """The tokens spent so far; None when the provider does not say."""
        counted = [answer.usage_metadata for answer in self.answers if answer.usage_metadata]
        if not counted:
            return None
        return {
            "input_tokens": sum(usage["input_tokens"] for usage in counted),
            "output_tokens": sum(usage["output_tokens"] for usage in counted),
            "total_tokens": sum(usage["total_tokens"] for usage in counted),
        }

    def final_text(self) -> str:
        """Return the last answer, or all there is when it has no words."""
        answers = self.answers
        return (answers[-1].text.strip() if answers else "") or self.findings()

    def findings(self) -> str:
        """Return what was found so far: the model's words, or the last tool results when it said none."""
        texts = [*(answer.text for answer in self.answers), self._draft]
        said = [text.strip() for text in texts if text.strip()]
        if said:
            return "\n\n".join(said)
        results = [message for message in self._messages.values() if isinstance(message, ToolMessage)]
        return "\n\n".join(
            f"[{result.name or 'tool'}] {result.text.strip()[:MAX_TOOL_CHARS]}"
            for result in results[-MAX_TOOL_RESULTS:]
            if result.text.strip()
        )
