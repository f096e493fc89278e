"""User feedback on runs: kept in the store, in a namespace that the store's routes cannot reach."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from langgraph.store.base import BaseStore

_NAMESPACE = "feedback"
_MAX = 1000
OWN = "own"
"""The key of a user's single feedback on a run as a whole."""


@dataclass(frozen=True, slots=True)
class RunFeedback:
    """One user's feedback on a run."""

    feedback_id: str
    run_id: str
    thread_id: str
    user_id: str
    rating: int
    comment: str | None = None
    message_id: str | None = None
    created_at: str = ""


async def put_feedback(store: BaseStore, feedback: RunFeedback, *, key: str | None = None) -> None:
    """Store feedback under its id, or under `key`, replacing what is stored there."""
    await store.aput(
        (_NAMESPACE, feedback.thread_id, feedback.run_id), key or feedback.feedback_id, asdict(feedback)
    )


async def feedback_of(
    store: BaseStore, thread_id: str, run_id: str | None = None
) -> list[tuple[str, RunFeedback]]:
    """Return key and feedback of a run, or of a whole thread, oldest first."""
    namespace = (_NAMESPACE, thread_id, run_id) if run_id else (_NAMESPACE, thread_id)
    found = [(item.key, _load(item.value)) for item in await store.asearch(namespace, limit=_MAX)]
    return sorted(found, key=lambda pair: pair[1].created_at)


async def delete_feedback(store: BaseStore, thread_id: str, run_id: str, key: str) -> None:
    """Delete one feedback entry."""
    await store.adelete((_NAMESPACE, thread_id, run_id), key)


async def forget_feedback(store: BaseStore, thread_id: str) -> None:
    """Delete all feedback on a thread's runs."""
    while items := await store.asearch((_NAMESPACE, thread_id), limit=_MAX):
        for item in items:
            await store.adelete(item.namespace, item.key)


def _load(fields: Mapping[str, Any]) -> RunFeedback:
    return RunFeedback(**{name: fields[name] for name in RunFeedback.__dataclass_fields__ if name in fields})
