"""Store of thread rows, and their search query."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from deerflow.domain import Thread, ThreadStatus

SortKey = Literal["created_at", "updated_at", "thread_id", "status"]


@dataclass(frozen=True, slots=True)
class ThreadQuery:
    """Filter, order and page of a thread search."""

    user_id: str | None
    """The owner of the threads; None: all users."""
    metadata: Mapping[str, Any] | None = None
    """Only threads whose metadata has all of these keys with equal values, including nested objects."""
    status: ThreadStatus | None = None
    ids: Sequence[str] | None = None
    limit: int = 100
    offset: int = 0
    sort_by: SortKey = "updated_at"
    descending: bool = True


class ThreadStore(ABC):
    """Thread rows, as lists show them."""

    @abstractmethod
    async def create(
        self, thread_id: str, user_id: str, metadata: Mapping[str, Any], *, is_new: bool = False
    ) -> Thread:
        """Return the thread, created now or earlier; raise `ConflictError` for another user's id.

        Args:
            is_new: Raise `ConflictError` for an existing thread too.
        """

    @abstractmethod
    async def get(self, thread_id: str, user_id: str | None = None) -> Thread:
        """Return a thread; raise `NotFoundError` when it does not exist or belongs to another user."""

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
        """Merge metadata, set title, status, interrupts and `asks`; `touch` updates `updated_at`."""

    @abstractmethod
    async def delete(self, thread_id: str, *, unless_busy: bool = False) -> None:
        """Delete the thread with its runs, events, fragments and checkpoints (sub-threads too).

        Args:
            unless_busy: Raise `ConflictError` when one of its runs is pending or running.
        """
