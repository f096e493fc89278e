"""Threads as lists show them, and how they are searched."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from deerflow.domain import Thread, ThreadStatus

SortKey = Literal["created_at", "updated_at", "thread_id", "status"]


@dataclass(frozen=True, slots=True)
class ThreadQuery:
    """Which threads a search returns."""

    user_id: str | None
    """Whose threads; None: everybody's."""
    metadata: Mapping[str, Any] | None = None
    """Only threads whose metadata has all of these keys with equal values, also inside of objects."""
    status: ThreadStatus | None = None
    ids: Sequence[str] | None = None
    limit: int = 100
    offset: int = 0
    sort_by: SortKey = "updated_at"
    descending: bool = True


class ThreadStore(ABC):
    """Threads as lists show them."""

    @abstractmethod
    async def create(
        self, thread_id: str, user_id: str, metadata: Mapping[str, Any], *, is_new: bool = False
    ) -> Thread:
        """Return the thread, made now or before; another user's id raises `ConflictError`.

        Args:
            is_new: A thread that was made before raises `ConflictError` too.
        """

    @abstractmethod
    async def get(self, thread_id: str, user_id: str | None = None) -> Thread:
        """Return a thread; `NotFoundError` when it is not there or belongs to another user."""

    @abstractmethod
    async def search(self, query: ThreadQuery) -> list[Thread]: ...

    @abstractmethod
    async def count(self, query: ThreadQuery) -> int: ...

    @abstractmethod
    async def update(
        self,
        thread_id: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        title: str | None = None,
        status: ThreadStatus | None = None,
        interrupts: Mapping[str, Any] | None = None,
        asks: bool | None = None,
        touch: bool = True,
    ) -> Thread:
        """Merge metadata, set title, status, questions and `asks`; `touch` moves `updated_at`."""

    @abstractmethod
    async def delete(self, thread_id: str, *, unless_busy: bool = False) -> None:
        """Delete the thread with its runs, events, fragments and checkpoints (sub-threads too).

        Args:
            unless_busy: `ConflictError` when one of its runs waits or runs.
        """
