"""Base of both engines: one writer with its queue, and a pool of reader threads."""

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar, cast

from typing_extensions import override

from deerflow.errors import StorageError
from deerflow.storage.database import Database, Engine
from deerflow.storage.write_queue import UnitQueue

T = TypeVar("T")


class PooledEngine(Engine):
    """An engine whose reads run in threads with their own connections; a subclass provides the writer."""

    _writer: UnitQueue

    def __init__(self, name: str, *, readers: int) -> None:
        """Create the reader threads.

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

    @override
    def write_blocking(self, work: Callable[[Database], T]) -> T:
        return cast(T, self._writer.ask_blocking(work).result())

    @override
    def post(self, work: Callable[[Database], object]) -> None:
        self._writer.ask_blocking(work)

    @override
    async def read(self, work: Callable[[Database], T]) -> T:
        return await asyncio.wrap_future(self._far(work))

    @override
    def read_blocking(self, work: Callable[[Database], T]) -> T:
        return self._far(work).result()

    @override
    async def aclose(self) -> None:
        await asyncio.to_thread(self._close)

    def _far(self, work: Callable[[Database], T]) -> "Future[T]":
        if self._is_closed:
            raise StorageError(f"the database {self._name} is closed")
        return self._pool.submit(self._read_here, work)
