"""The tags by which the harness speaks to the model, and how nobody else gets to use them."""

import re
from functools import lru_cache

from langchain_core.messages import HumanMessage, SystemMessage

FRAMEWORK_TAGS = (
    "system-reminder",
    "conversation-summary",
    "tool-result",
    "uploaded_files",
    "current_uploads",
    "subagent_system",
    "clarification_system",
    "skill_system",
    "critical_reminders",
    "deferred_tools",
    "thinking_style",
    "response_style",
    "working_directory",
    "todo_list_system",
    "memory",
    "soul",
    "system",
)
"""Tags that carry weight in our prompts; all other markup in a message is the writer's own business."""

MAX_REMEMBERED = 128
_NAMES = "|".join(map(re.escape, FRAMEWORK_TAGS))
# Possessive: a page may have a million blanks behind a bracket, and trying all of them again takes for ever.
_FORGED = re.compile(rf"<(?=\s*+(?:/\s*+)?(?:{_NAMES})(?![\w-])|\|[\w-]{{1,40}}\|>)", re.IGNORECASE)


def neutralise(text: str) -> str:
    """Return `text` with forged tags, and the special tokens of chat templates, as mere words."""
    return _FORGED.sub("&lt;", text) if "<" in text else text


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
