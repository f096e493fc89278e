"""What a database is to the stores: statements inside a transaction, and an engine that runs them.

A store is plain functions of a `Database`. There is one set of them; what the databases say
differently is in their `Dialect`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from deerflow.storage.signals import Signals

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Dialect:
    """What databases say differently."""

    clock: str
    """The database's clock in seconds: leases of several processes are compared with each other."""
    by_flight: str
    """Behind the table `runs`: walk the index of runs in flight."""
    shared: str
    """Behind a SELECT: nobody may claim, end or delete these rows before this transaction is over."""
    locked: str
    """Behind a SELECT: wait for those who share these rows, and keep all others out."""
    trusts_locks: bool
    """Owners of this machine live as long as they have their locks, whatever their leases say."""
    is_near: bool
    """A statement costs no trip to somewhere else."""
    is_text_of: str
    """Behind a column: is one of the texts of a JSON list."""
    is_number_of: str
    """Behind a column: is one of the numbers of a JSON list."""
    position: str
    """The function that finds a part of a text, 0 when it is not there."""
    has_metadata: Callable[[Sequence[str], Any], tuple[str, list[Any]]]
    """Returns the condition, with its values, that a row's metadata has this value under these keys."""


class Rows(Protocol):
    """What a statement found or did."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """A connection inside a transaction."""

    @property
    def dialect(self) -> Dialect: ...

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Rows: ...

    def hold(self, thread_id: str, /) -> None:
        """Keep everybody else from changing the runs of a thread until this transaction is over."""

    def notify(self, topic: str, /) -> None:
        """Tell those who watch the topic, once this transaction is committed."""

    def enqueue(self, run_id: str, start_at: int | None = None, /) -> None:
        """Call for somebody who takes up this run, now or at a time in microseconds."""

    def dequeue(self, run_id: str, /) -> None:
        """Take the call back: the run has somebody, or needs nobody any more."""


class Engine(ABC):
    """Writes and reads one database; closing it finishes every write."""

    dialect: Dialect
    signals: Signals

    @abstractmethod
    async def write(
        self, work: Callable[[Database], T], *, may_wait: bool = False, weight: int | None = None
    ) -> T:
        """Run `work` in a transaction and return its result once it is committed.

        `work` may be run twice when the first transaction is lost, so it touches only the database.

        Args:
            may_wait: Nobody waits for this one: it is committed a moment later, with others.
            weight: About how many bytes it writes, if known: few of them may not need another thread.
        """

    @abstractmethod
    def write_blocking(self, work: Callable[[Database], T]) -> T:
        """Like `write`, for callers without an event loop."""

    @abstractmethod
    def post(self, work: Callable[[Database], object]) -> None:
        """Queue a write that nobody waits for; it is stored before every write that comes after it."""

    @abstractmethod
    async def read(self, work: Callable[[Database], T]) -> T:
        """Run a read that may take long; its statements see one state."""

    @abstractmethod
    async def peek(self, work: Callable[[Database], T]) -> T:
        """Run a read of a few rows by index, as quickly as the database can."""

    @abstractmethod
    def read_blocking(self, work: Callable[[Database], T]) -> T:
        """Like `read`, for callers without an event loop."""

    def hasten(self) -> None:
        """Wait no longer for a database that is away: this process is about to end."""
        return  # a file is never away

    @abstractmethod
    async def aclose(self) -> None:
        """Finish all writes and let go of the database."""
