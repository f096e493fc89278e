"""The durable event log of runs.

An event body is JSON in which repeated pieces are replaced by references to *fragments*: the byte
0x01, a number or a range `a-b`, and 0x01 again (raw control characters cannot occur in JSON). A
range stands for its fragments joined by commas. So a thread's messages are stored once, however
often `values` events repeat them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One stored event."""

    seq: int
    unix_ms: int
    kind: str
    body: bytes


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Events of one run that are stored in one transaction, with the fragments they are the first to use."""

    run_id: str
    thread_id: str
    attempt: int
    entries: Sequence[LogEntry]
    fragments: Sequence[tuple[int, bytes]] = ()


class EventLog(ABC):
    """The durable event log of all runs."""

    @abstractmethod
    async def append(self, batch: LogBatch, *, is_urgent: bool = False) -> None:
        """Store a batch; raise `StaleAttemptError` when another attempt owns the run.

        A batch that is not urgent may be delayed briefly to be stored with others.

        A batch that was stored before, wholly or in part, is stored once; a sequence number that is taken by
        a different event is a `ConflictError`.
        """

    @abstractmethod
    async def read(self, run_id: str, *, after_seq: int = -1, limit: int = 1000) -> list[LogEntry]:
        """Return stored events in order, from the first after `after_seq`."""

    @abstractmethod
    async def last_seq(self, run_id: str) -> int:
        """Return the highest stored sequence number, -1 when there is none."""

    @abstractmethod
    async def newest_fragment(self, thread_id: str) -> tuple[int, bytes]:
        """Return number and digest of the thread's newest fragment, -1 and empty bytes when there is none."""

    @abstractmethod
    async def digests(self, thread_id: str) -> dict[bytes, int]:
        """Return the thread's fragment numbers by their 16-byte BLAKE2b digest."""

    @abstractmethod
    async def fragments(self, thread_id: str, numbers: Sequence[int]) -> dict[int, bytes]:
        """Return the bytes of these fragments."""
