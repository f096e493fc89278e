"""The database interface of the stores: statements inside a transaction, and the engine that runs them.

The stores are functions of a `Database`. One implementation serves all databases; the SQL that differs
is in each `Dialect`.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from deerflow.errors import StorageError
from deerflow.storage.signals import Signals
from deerflow.storage.write_queue import WriteQueue

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

T = TypeVar("T")


class TextIndex(ABC):
    """How a database indexes and compares passages (`passages.py`)."""

    @abstractmethod
    def add(self, db: "Database", key: int, tokens: Sequence[str]) -> None:
        """Index the distinct tokens of a passage."""

    @abstractmethod
    def remove(self, db: "Database", key: int, tokens: Sequence[str]) -> None:
        """Remove a passage that was indexed with these tokens."""

    @abstractmethod
    def with_token(self, db: "Database", token: str) -> Sequence[int]:
        """Return the keys of the passages with a token."""

    @abstractmethod
    def put_vectors(
        self, db: "Database", collection: int, model: str, vectors: "Mapping[int, NDArray[float32]]"
    ) -> None:
        """Add or replace the vectors of passages."""

    @abstractmethod
    def remove_vectors(self, db: "Database", collection: int, keys: Collection[int]) -> None:
        """Delete the vectors of passages, of all models."""

    @abstractmethod
    def with_vector(self, db: "Database", collection: int, model: str) -> Collection[int]:
        """Return the keys of the passages that have a vector of a model."""

    @abstractmethod
    def nearest(
        self,
        db: "Database",
        collection: int,
        model: str,
        vector: "NDArray[float32]",
        limit: int,
        *,
        also: Sequence[int] = (),
    ) -> Mapping[int, float]:
        """Return the cosines of the nearest passages of a collection, and of those in `also`."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """SQL fragments and properties that differ between databases."""

    clock: str
    """SQL expression for the database's clock in seconds; leases of several processes are compared by it."""
    by_flight: str
    """Follows the table `runs`: use the index of runs in flight."""
    shared: str
    """Ends a SELECT: no other transaction may claim, end or delete these rows until this one ends."""
    locked: str
    """Ends a SELECT: wait for transactions that share these rows, then lock them exclusively."""
    trusts_locks: bool
    """An owner on this machine is alive while it holds its lock, even if its lease has expired."""
    is_text_of: str
    """Follows a column: its value is one of the strings of a JSON list."""
    is_number_of: str
    """Follows a column: its value is one of the numbers of a JSON list."""
    position: str
    """Name of the function that finds a substring; it returns 0 when there is none."""
    has_metadata: Callable[[Sequence[str], Any], tuple[str, list[Any]]]
    """Return the SQL condition and its parameters for metadata with this value under these keys."""
    text_index: TextIndex


class Rows(Protocol):
    """Result of a statement."""

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

    def lock_thread(self, thread_id: str, /) -> None:
        """Lock the runs of a thread against changes by other transactions until this one ends."""

    def notify(self, topic: str, /) -> None:
        """Signal the topic once this transaction is committed."""

    def enqueue(self, run_id: str, start_at: int | None = None, /) -> None:
        """Queue this run for a worker, now or at a time in microseconds."""

    def dequeue(self, run_id: str, /) -> None:
        """Remove the run from the queue: it has an owner or has ended."""


class Engine(ABC):
    """Writes and reads one database: one writer with its queue, and reader threads with their connections."""

    dialect: Dialect
    signals: Signals
    _writer: WriteQueue

    def __init__(self, name: str, *, readers: int) -> None:
        """Create the reader threads; a subclass creates the writer.

        Args:
            name: The database, for the error of a read after closing.
        """
        self._name = name
        self._is_closed = False
        self._local = threading.local()
        self._pool = ThreadPoolExecutor(readers, thread_name_prefix="deerflow-reader")

    @abstractmethod
    def _read_here(self, work: Callable[[Database], T]) -> T:
        """Run a read in a reader thread, on that thread's connection."""

    @abstractmethod
    def _close(self) -> None:
        """Finish all writes and close the database."""

    async def write(
        self, work: Callable[[Database], T], *, may_wait: bool = False, weight: int | None = None
    ) -> T:
        """Run `work` in a transaction and return its result once it is committed.

        `work` may run twice when the first transaction is lost, so it must touch only the database.

        Args:
            may_wait: The caller does not need the commit at once: delay it briefly and commit it with others.
            weight: Approximate bytes written, if known: a small write may be done without a thread switch.
        """
        return cast(T, await self._writer.submit(work, may_wait=may_wait, weight=weight))

    def write_blocking(self, work: Callable[[Database], T]) -> T:
        """Like `write`, for callers without an event loop."""
        return cast(T, self._writer.submit_blocking(work).result())

    def post(self, work: Callable[[Database], object]) -> None:
        """Queue a write without waiting for it; it is stored before every write that is queued later."""
        self._writer.submit_blocking(work)

    async def read(self, work: Callable[[Database], T]) -> T:
        """Run a read that may take long; all its statements see one snapshot."""
        return await asyncio.wrap_future(self._submit_read(work))

    async def peek(self, work: Callable[[Database], T]) -> T:
        """Run a read of a few rows by index, as fast as the database allows."""
        return await self.read(work)

    def shorten_timeouts(self) -> None:
        """Stop waiting for an unreachable database: this process is about to exit."""
        return  # a local file is always reachable

    async def aclose(self) -> None:
        """Finish all writes and close the database."""
        await asyncio.to_thread(self._close)

    def _submit_read(self, work: Callable[[Database], T]) -> "Future[T]":
        if self._is_closed:
            raise StorageError(f"the database {self._name} is closed")
        return self._pool.submit(self._read_here, work)
