"""Titles of threads: set when a run is admitted, and kept when a turn is regenerated."""

from dataclasses import replace
from typing import Any

from langchain_core.messages import AnyMessage
from langgraph.types import Command

from deerflow.agents.middlewares.title import title_from_question
from deerflow.config import TitleSettings
from deerflow.domain import RunRequest
from deerflow.runtime.messages_in import parse_messages
from deerflow.runtime.states import ThreadStates
from deerflow.storage import Storage


def with_title(request: RunRequest, settings: TitleSettings) -> RunRequest:
    """Return a request with a title cut from its question, for a thread that has none."""
    raw = (request.input or {}).get("messages")
    if not settings.enabled or not raw:
        return request
    messages: list[AnyMessage] = parse_messages(raw)  # type: ignore[assignment]
    return replace(request, title=title_from_question(messages, settings) or None)


async def given_title(
    storage: Storage, states: ThreadStates, thread_id: str, checkpoint_id: str, settings: TitleSettings
) -> str | None:
    """Return a thread's title if it was not cut from its question and a past state has another.

    A run that continues from that state would otherwise bring the other title back.
    """
    title = (await storage.threads.get(thread_id)).title
    state = await states.latest(thread_id)
    if title is None or state is None:
        return None
    past = await states.latest(thread_id, checkpoint_id=checkpoint_id)
    if past is not None and past.values.get("title") == title:
        return None
    is_cut = title == title_from_question(state.values.get("messages", ()), settings)
    return None if is_cut else title


def titled(values: Any, title: str) -> Any:
    """Return a graph input that also sets the title, unless it sets one itself."""
    match values:
        case None:  # no input: continue, with a command that only updates
            return Command(update={"title": title})
        case Command(update=None):
            return replace(values, update={"title": title})
        case Command(update=dict(update)):
            return replace(values, update={"title": title, **update})
        case Command(update=list(pairs)):
            return replace(values, update=[("title", title), *pairs])
        case dict():
            return {"title": title, **values}
    return values
