"""How processes that share a database hear of work."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable


class Jobs(ABC):
    """Tells the processes that share a database of runs that wait for somebody to take them up."""

    @abstractmethod
    async def follow(self, take: Callable[[str], Awaitable[None]], *, concurrency: int) -> None:
        """Call `take` with the id of each such run, up to `concurrency` at a time, until cancelled.

        A call lasts as long as the run occupies this process. Each run is told to one process, mostly; one
        that is told twice or not at all is what `RunStore.orphans` is for.
        """

    @abstractmethod
    async def workers(self) -> int:
        """Return how many processes listen at the moment."""
