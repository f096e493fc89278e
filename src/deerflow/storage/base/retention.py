"""Deletion of old data."""

from abc import ABC, abstractmethod
from datetime import datetime


class Retention(ABC):
    """Deletes data that is older than the operator's limits."""

    @abstractmethod
    async def drop_events(self, *, ended_before: datetime, limit: int) -> int:
        """Delete the events of up to `limit` runs that ended before; return how many runs had any."""

    @abstractmethod
    async def drop_checkpoints(self, thread_id: str, *, keep: int) -> int:
        """Delete all but the newest `keep` checkpoints of a thread and of each of its sub-threads.

        Ancestors that the kept ones are rebuilt from stay. Returns how many were deleted; 0 while a run of
        the thread is in flight.
        """
