"""Job queue that dispatches runs to the processes that share a database."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable


class Jobs(ABC):
    """Dispatches runs that wait for an owner to the processes that share a database."""

    @abstractmethod
    async def follow(self, take: Callable[[str], Awaitable[None]], *, concurrency: int) -> None:
        """Call `take` with the id of each such run, up to `concurrency` at a time, until cancelled.

        A call lasts as long as the run occupies this process. Usually each run is dispatched to one process;
        `RunStore.orphans` covers runs that are dispatched twice or not at all.
        """

    @abstractmethod
    async def workers(self) -> int:
        """Return how many processes currently fetch jobs."""
