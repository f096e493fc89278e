"""Adds the date and remembered facts to requests without changing the system prompt.

The system prompt contains neither, so that providers can cache it. Both are placed before the message with
which they first applied, and are stored in the state at the start of that turn. Every later request has them
at the same position, and a thread that continues past midnight gets a second note instead of a changed one.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from functools import lru_cache
from typing import cast

from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage
from typing_extensions import override

from deerflow.agents.messages import is_human
from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.state import ThreadState
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler

Clock = Callable[[], datetime]
_DATE = "Today is"


def local_time() -> datetime:
    """Return the local time of this host."""
    return datetime.now().astimezone()


class ReminderMiddleware(ChainMiddleware):
    """Inserts the stored notes before the messages they belong to."""

    switch = "reminder"
    before = ("DanglingToolCallMiddleware",)

    def __init__(self, *, clock: Clock = local_time) -> None:
        super().__init__()
        self._clock = clock

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        state = cast("ThreadState", request.state)
        noted = state.get("reminders") or first_note(request.messages, self._clock().date())
        return await handler(request.override(messages=with_reminders(request.messages, noted)))


def new_note(question: HumanMessage | None, known: Mapping[str, str] | None, today: date) -> dict[str, str]:
    """Return a turn's new note, today's date; nothing if the last note has it already."""
    text = f"{_DATE} {today:%A}, {today.isoformat()}."
    dates = [note.partition("\n")[0] for note in (known or {}).values() if note.startswith(_DATE)]
    if question is None or question.id is None or text in dates[-1:]:
        return {}
    return {question.id: text}


def first_note(messages: Sequence[AnyMessage], today: date) -> dict[str, str]:
    """Return the note for agents without `TurnStartMiddleware`, such as sub-agents."""
    return new_note(next((m for m in messages if isinstance(m, HumanMessage)), None), None, today)


def visible_notes(messages: Sequence[AnyMessage], notes: Mapping[str, str]) -> list[str]:
    """Return the notes that a request has, as `with_reminders` places them."""
    present = {message.id for message in messages}
    gone = [text for message_id, text in notes.items() if message_id not in present]
    return [*([_last_of(gone)] if gone else []), *(notes[name] for name in notes if name in present)]


def with_reminders(messages: Sequence[AnyMessage], notes: Mapping[str, str]) -> list[AnyMessage]:
    """Return `messages` with each note before its message; of notes without a message, only the last."""
    noted = [index for index, message in enumerate(messages) if message.id in notes]
    present = {messages[index].id for index in noted}
    gone = [text for message_id, text in notes.items() if message_id not in present]
    found = list(messages)
    for index in reversed(noted):
        message = messages[index]
        if is_human(message) and (note := notes[message.id or ""]):
            found.insert(index, reminder(note))
    return [reminder(_last_of(gone)), *found] if gone else found


def _last_of(gone: Sequence[str]) -> str:
    """Return the last date and the last other text of the notes."""
    dates = [text.partition("\n")[0] for text in gone if text.startswith(_DATE)]
    others = [
        rest for text in gone if (rest := text.partition("\n")[2] if text.startswith(_DATE) else text).strip()
    ]
    return "\n\n".join(text.strip() for text in (*dates[-1:], *others[-1:]))


MAX_CACHED = 128


@lru_cache(maxsize=MAX_CACHED)
def reminder(text: str) -> HumanMessage:
    """Return a reminder from the harness to the model; it is part of requests and never stored."""
    return HumanMessage(
        f"<system-reminder>\n{text}\n</system-reminder>", additional_kwargs={"hide_from_ui": True}
    )


def extended(prompt: SystemMessage | None, text: str) -> SystemMessage:
    """Return the system prompt with `text` appended."""
    if prompt is None:
        return SystemMessage(text)
    if isinstance(prompt.content, str):
        return _joined(prompt.content, text)
    return SystemMessage([*prompt.content, {"type": "text", "text": text}])


@lru_cache(maxsize=MAX_CACHED)
def _joined(prompt: str, text: str) -> SystemMessage:
    """Build the message once per prompt: it is the same before every call."""
    return SystemMessage(f"{prompt}\n\n{text}")
