"""Identifiers: how they are made and what they may look like."""

import hashlib
import re
import uuid

THREAD_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
DEFAULT_USER = "default"
"""Who acts when nobody has to log in."""


def new_id() -> str:
    """Return a fresh random identifier (a UUID, as LangGraph clients expect)."""
    return str(uuid.uuid4())


def is_thread_id(text: str) -> bool:
    """Tell whether `text` may name a thread."""
    return THREAD_ID.fullmatch(text) is not None


def folder_name(user_id: str) -> str:
    """Return `user_id` as a folder name: itself when safe, else cleaned with a hash behind it."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,128}", user_id):
        return user_id
    cleaned = re.sub(r"[^A-Za-z0-9_-]", "-", user_id)[:64]
    return f"{cleaned}-{hashlib.sha256(user_id.encode()).hexdigest()[:16]}"
