"""Builds the harness's own texts in requests: reminders and system prompt sections."""

from functools import lru_cache

from langchain_core.messages import HumanMessage, SystemMessage

MAX_REMEMBERED = 128


@lru_cache(maxsize=MAX_REMEMBERED)
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


@lru_cache(maxsize=MAX_REMEMBERED)
def _joined(prompt: str, text: str) -> SystemMessage:
    """Build the message once per prompt: it is the same before every call."""
    return SystemMessage(f"{prompt}\n\n{text}")
