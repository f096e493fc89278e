"""How what is old goes."""

from abc import ABC, abstractmethod
from datetime import datetime


class Retention(ABC):
    """Deletes what is kept longer than the operator wants."""

    @abstractmethod
    async def drop_events(self, *, ended_before: datetime, limit: int) -> int:
        """Delete the events of up to `limit` runs that ended before; return of how many there were some."""

    @abstractmethod
    async def drop_checkpoints(self, thread_id: str, *, keep: int) -> int:
        """Delete all but the newest `keep` checkpoints of a thread and of each of its sub-threads.

        What those are rebuilt from stays. Returns how many went; none while a run of the thread is in flight.
        """
