"""Calls a model outside the conversation: for a title, a summary, a suggestion.

Such a call has its own context, so its tokens appear in no run's stream and its failure fails no run. Its
usage is returned to the caller.
"""

import asyncio
import contextvars
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain_core.language_models import BaseChatModel

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 60.0
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SideAnswer:
    """The outcome of a side call; the text is empty if it failed."""

    text: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)
    """The provider's token usage; empty if it reported none."""


async def side_call(
    prompt: str, model: BaseChatModel, *, what: str, timeout_seconds: float = TIMEOUT_SECONDS
) -> SideAnswer:
    """Return a model's answer to `prompt`; an empty one if the call failed or timed out.

    Args:
        what: What is being written, for the log.
    """
    asking = asyncio.create_task(_answer(prompt, model), context=contextvars.Context())
    try:
        async with asyncio.timeout(timeout_seconds):
            return await asking
    except Exception as error:  # whatever the provider raises, the caller continues without the answer
        logger.warning("%s was not written: %s: %s", what, type(error).__name__, error)
        return SideAnswer()
    finally:
        asking.cancel()


def without_thoughts(text: str) -> str:
    """Return an answer without its leading `<think>` block."""
    return _THOUGHT.sub("", text).strip()


def framed(text: str, tag: str) -> str:
    """Return a text between two tags, with its own occurrences of the tag escaped."""
    inner = re.sub(rf"<(?=\s*+(?:/\s*+)?{tag}\b)", "&lt;", text, flags=re.IGNORECASE)
    return f"<{tag}>\n{inner}\n</{tag}>"


async def _answer(prompt: str, model: BaseChatModel) -> SideAnswer:
    message = await model.ainvoke(prompt)
    return SideAnswer(without_thoughts(message.text), dict(message.usage_metadata or {}))
