"""The waiting interrupts of a thread, as lists of threads show them."""

from dataclasses import replace
from typing import Any

import orjson
from langgraph.types import Interrupt

from deerflow.runtime.serialization import to_json
from deerflow.runtime.states import ThreadStates

_MOST_BYTES = 16 * 1024
"""A list may hold a thousand threads: the value of a longer interrupt is only in the thread's state."""


async def listed_questions(states: ThreadStates, thread_id: str) -> dict[str, Any]:
    """Return the interrupts of a thread by graph task, as plain JSON."""
    waiting = await states.questions(thread_id)
    return {task: [_listed(asked) for asked in questions] for task, questions in waiting.items()}


def _listed(asked: Interrupt) -> Any:
    text = to_json(asked)
    return orjson.loads(text if len(text) <= _MOST_BYTES else to_json(replace(asked, value=None)))
