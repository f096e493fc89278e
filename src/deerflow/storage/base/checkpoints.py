"""Checkpoints of threads: LangGraph's interface and DeerFlow's additions."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of items and their total bytes."""

    count: int = 0
    bytes: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.count + other.count, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class StoredSizes:
    """Storage used by the checkpoints of a thread and its sub-threads."""

    checkpoints: Amount
    """Including the values that are small enough to be stored inline."""
    writes: Amount
    channels: Mapping[str, Amount]
    """The large values by channel, each distinct value counted once."""


class CheckpointStore(BaseCheckpointSaver[int], ABC):
    """Checkpoints of all threads."""

    @abstractmethod
    async def afork_thread(self, source_thread_id: str, target_thread_id: str, checkpoint_id: str) -> None:
        """Copy a thread's checkpoints up to one of them into a new thread, without those of sub-agents.

        `NotFoundError` when the source has no such checkpoint.
        """

    @abstractmethod
    async def ahas_run(self, thread_id: str, run_id: str) -> bool:
        """Return whether a run created a checkpoint of the thread, including copies from another thread."""

    @abstractmethod
    async def anamespaces(self, thread_id: str) -> Sequence[RunnableConfig]:
        """Return the newest checkpoints of a thread and its sub-threads: one config per namespace."""

    @abstractmethod
    async def akeep_latest(self, thread_id: str) -> int:
        """Delete checkpoints that the newest one of each namespace does not need; return their number."""

    @abstractmethod
    async def asizes(self, thread_id: str) -> StoredSizes:
        """Return the storage used by a thread's checkpoints; zero for an unknown thread."""
