"""Fast type checks for messages, and the markers that DeerFlow sets on them.

`isinstance` is fast when an object's type is the class itself, but slow when the check fails: Python then
calls `__instancecheck__` of pydantic's metaclass. A dozen middlewares check every message before every model
call.
"""

from collections.abc import Iterable, Sequence

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from typing_extensions import TypeIs

_HUMAN_OR_AI = frozenset({HumanMessage, AIMessage})
_AI_OR_TOOL = frozenset({AIMessage, ToolMessage})
_HUMAN_OR_TOOL = frozenset({HumanMessage, ToolMessage})


def is_human(message: BaseMessage) -> TypeIs[HumanMessage]:
    """Return whether this is a user message."""
    return type(message) not in _AI_OR_TOOL and isinstance(message, HumanMessage)


def is_ai(message: BaseMessage) -> TypeIs[AIMessage]:
    """Return whether this is a model response."""
    return type(message) not in _HUMAN_OR_TOOL and isinstance(message, AIMessage)


def may_have_results(messages: Iterable[BaseMessage]) -> bool:
    """Return whether there may be tool results; fast for conversations that have none."""
    return not _HUMAN_OR_AI.issuperset(map(type, messages))


def is_result(message: BaseMessage) -> TypeIs[ToolMessage]:
    """Return whether this is a tool result."""
    return type(message) not in _HUMAN_OR_AI and isinstance(message, ToolMessage)


MAX_CALL_ID_CHARS = 40
"""OpenAI rejects a conversation that contains a longer tool call id."""
NOTE = "deerflow_note"
"""Marks messages that DeerFlow inserted into a conversation, to distinguish them from the user's."""
STARTED = "subagent_background"
"""Marks the result of a call that started a background task."""
REPORTED = "reported_tasks"
"""Key under which a message lists the background tasks whose results it delivers."""
ENDED = "ended"
"""Marks an incomplete answer: `stopped` or `failed`."""
END_REASON = "end_reason"
"""Why an answer failed, as text for people."""

FAILURE = "deerflow_error_fallback"
"""Marks the message that says why an answer failed; the name is DeerFlow 2's, whose clients read it."""


def is_question(message: AnyMessage) -> bool:
    """Return whether a message starts a turn: a user message that is not a DeerFlow note."""
    return isinstance(message, HumanMessage) and NOTE not in message.additional_kwargs


def outdated_failures(messages: Sequence[AnyMessage]) -> list[str]:
    """Return the ids of the failure notes about the last question, for a run that answers it again.

    The same question may have been sent again under a new id.
    """
    found: list[str] = []
    notes: list[str] = []
    asked: HumanMessage | None = None
    for message in reversed(messages):
        if FAILURE in message.additional_kwargs and message.id is not None:
            notes.append(message.id)
        elif isinstance(message, HumanMessage) and is_question(message):
            if asked is not None and message.content != asked.content:
                break
            found, notes, asked = [*found, *notes], [], message
    return found


def open_tasks(messages: list[AnyMessage]) -> set[str]:
    """Return the background tasks started in these messages whose results were not delivered yet."""
    started = {
        message.tool_call_id
        for message in messages
        if isinstance(message, ToolMessage) and message.additional_kwargs.get(STARTED)
    }
    if not started:
        return started
    return started - {each for message in messages for each in message.additional_kwargs.get(REPORTED, ())}


def call_id(kind: str, unique: str) -> str:
    """Return the id of a tool call that DeerFlow makes on the agent's behalf; `unique` is a UUID."""
    return f"{kind}_{unique.replace('-', '')}"[:MAX_CALL_ID_CHARS]
