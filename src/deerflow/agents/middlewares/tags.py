"""Messages in which the harness speaks to the model."""

from functools import lru_cache

from langchain_core.messages import HumanMessage, SystemMessage

MAX_REMEMBERED = 128


@lru_cache(maxsize=MAX_REMEMBERED)
def reminder(text: str) -> HumanMessage:
    """Return a message in which the harness speaks; it is part of requests and never stored."""
    return HumanMessage(
        f"<system-reminder>\n{text}\n</system-reminder>", additional_kwargs={"hide_from_ui": True}
    )


def extended(prompt: SystemMessage | None, text: str) -> SystemMessage:
    """Return the system prompt with `text` at its end."""
    if prompt is None:
        return SystemMessage(text)
    if isinstance(prompt.content, str):
        return _joined(prompt.content, text)
    return SystemMessage([*prompt.content, {"type": "text", "text": text}])


@lru_cache(maxsize=MAX_REMEMBERED)
def _joined(prompt: str, text: str) -> SystemMessage:
    """Make the message once per prompt: it is the same before every call."""
    return SystemMessage(f"{prompt}\n\n{text}")
