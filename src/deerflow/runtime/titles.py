"""Titles of threads: known as soon as a run is admitted, and kept when a turn is taken again."""

from dataclasses import replace
from typing import Any

from langchain_core.messages import AnyMessage
from langgraph.types import Command

from deerflow.agents.middlewares.title import title_from_question
from deerflow.config import TitleSettings
from deerflow.domain import RunRequest
from deerflow.runtime.messages_in import parse_messages
from deerflow.runtime.states import ThreadStates
from deerflow.storage.base import Storage


def with_title(request: RunRequest, settings: TitleSettings) -> RunRequest:
    """Return a request with the title for a thread that has none, cut from its question."""
    raw = (request.input or {}).get("messages")
    if not settings.enabled or not raw:
        return request
    messages: list[AnyMessage] = parse_messages(raw)  # type: ignore[assignment]
    return replace(request, title=title_from_question(messages, settings) or None)


async def given_title(
    storage: Storage, states: ThreadStates, thread_id: str, checkpoint_id: str, settings: TitleSettings
) -> str | None:
    """Return a thread's title if it was not just cut from its question, and a past state has another.

    Whatever goes on from that state would have the other one.
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
    """Return a graph's input that sets the title too, unless it sets one itself."""
    match values:
        case None:  # to go on from where the graph stands is a command without words
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
