"""Tags reserved for the framework's prompts, and escaping of forged ones."""

import re

FRAMEWORK_TAGS = (
    "system-reminder",
    "conversation-summary",
    "tool-result",
    "uploaded_files",
    "current_uploads",
    "subagent_system",
    "clarification_system",
    "skill_system",
    "active_skill",
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
"""Tags that have a meaning in our prompts; all other markup in a message is left alone."""

_BRACKETS = "<\uff1c\ufe64"
"""Characters that a model may read as the start of a tag, including full-width and small forms."""
_JOINERS = "\u200c\u200d"
"""Invisible, but needed to write some languages and emoji."""
_HIDDEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0e\ufeff\uffa0\U000e0000-\U000e0fff"
)
"""Invisible characters: zero-width, direction marks, fillers, and tag characters that spell hidden text."""
_UNSEEN = f"[{_HIDDEN}{_JOINERS}]*+"
_NAMES = "|".join(_UNSEEN.join(map(re.escape, name)) for name in FRAMEWORK_TAGS)
_BLANK = rf"[\s{_HIDDEN}{_JOINERS}]*+"
# Possessive: a page may have a million blanks after a bracket, and backtracking over them takes for ever.
_FORGED = re.compile(
    rf"[{_BRACKETS}](?={_BLANK}(?:/{_BLANK})?(?:{_NAMES})(?![\w-])|{_UNSEEN}\|[\w-]{{1,40}}\|>)",
    re.IGNORECASE,
)
_HIDDEN_CHARACTERS = re.compile(f"[{_HIDDEN}]+")


def neutralise(text: str) -> str:
    """Return `text` with forged tags, and the special tokens of chat templates, escaped."""
    return _FORGED.sub("&lt;", text) if any(bracket in text for bracket in _BRACKETS) else text


def without_hidden_characters(text: str) -> str:
    """Return `text` without characters that a model reads and a person does not see."""
    return text if text.isascii() else _HIDDEN_CHARACTERS.sub("", text)
