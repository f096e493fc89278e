"""The states of threads, step by step: LangGraph's interface, and what DeerFlow adds to it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver


@dataclass(frozen=True, slots=True)
class Amount:
    """So many of something, with so many bytes together."""

    count: int = 0
    bytes: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.count + other.count, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class StoredSizes:
    """What the states of a thread and its sub-threads take in the database."""

    checkpoints: Amount
    """With the values that are small enough to stand in them."""
    writes: Amount
    channels: Mapping[str, Amount]
    """The other values, each different one once, by channel."""


class CheckpointStore(BaseCheckpointSaver[int], ABC):
    """Checkpoints of all threads."""

    @abstractmethod
    async def afork_thread(self, source_thread_id: str, target_thread_id: str, checkpoint_id: str) -> None:
        """Give a new thread the states of another one up to a checkpoint; sub-agents' are left behind.

        `NotFoundError` when the other one has no such checkpoint.
        """

    @abstractmethod
    async def ahas_run(self, thread_id: str, run_id: str) -> bool:
        """Tell whether a run led to one of the thread's states, also one copied from another thread."""

    @abstractmethod
    async def aplaces(self, thread_id: str) -> Sequence[RunnableConfig]:
        """Return where the newest states of a thread and its sub-threads are: one config per namespace."""

    @abstractmethod
    async def akeep_latest(self, thread_id: str) -> int:
        """Delete what the newest state of each namespace does not need; return how many states went."""

    @abstractmethod
    async def asizes(self, thread_id: str) -> StoredSizes:
        """Return what the states of a thread take; nothing for one that is not there."""
