"""Create and validate identifiers."""

import hashlib
import re
import uuid

THREAD_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
DEFAULT_USER = "default"
"""The user when authentication is off."""


def new_id() -> str:
    """Return a new random identifier (a UUID, as LangGraph clients expect)."""
    return str(uuid.uuid4())


def is_thread_id(text: str) -> bool:
    """Return whether `text` is a valid thread id."""
    return THREAD_ID.fullmatch(text) is not None


def folder_name(user_id: str) -> str:
    """Return `user_id` as a folder name: unchanged when safe, else cleaned and with a hash appended."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,128}", user_id):
        return user_id
    cleaned = re.sub(r"[^A-Za-z0-9_-]", "-", user_id)[:64]
    return f"{cleaned}-{hashlib.sha256(user_id.encode()).hexdigest()[:16]}"
