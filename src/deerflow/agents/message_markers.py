"""What messages of DeerFlow carry, so that everybody who reads a conversation knows them."""

from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage

MAX_CALL_ID_CHARS = 40
"""OpenAI refuses a conversation with a longer id of a call in it."""
NOTE = "deerflow_note"
"""Marks messages that DeerFlow wrote into a conversation, so that nobody takes them for the user's."""
STARTED = "subagent_background"
"""Marks the result of a call that started a background task."""
TOLD = "told_tasks"
"""Where a message says which background tasks it tells the results of."""
ENDED = "ended"
"""Marks an answer that did not come to its end: `stopped` or `failed`."""
END_REASON = "end_reason"
"""Why an answer failed, in words for people."""


def is_question(message: AnyMessage) -> bool:
    """Tell what begins a turn from the notes that DeerFlow writes into it."""
    return isinstance(message, HumanMessage) and NOTE not in message.additional_kwargs


def open_tasks(messages: list[AnyMessage]) -> set[str]:
    """Return the background tasks that were started in these messages and whose end nobody was told."""
    started = {
        message.tool_call_id
        for message in messages
        if isinstance(message, ToolMessage) and message.additional_kwargs.get(STARTED)
    }
    if not started:
        return started
    return started - {each for message in messages for each in message.additional_kwargs.get(TOLD, ())}


def call_id(kind: str, unique: str) -> str:
    """Return the id of a call that DeerFlow makes in the agent's place; `unique` is a UUID."""
    return f"{kind}_{unique.replace('-', '')}"[:MAX_CALL_ID_CHARS]
