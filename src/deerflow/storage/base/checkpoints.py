"""The states of threads, step by step: LangGraph's interface, and what the house adds to it."""

from abc import ABC, abstractmethod

from langgraph.checkpoint.base import BaseCheckpointSaver


class CheckpointStore(BaseCheckpointSaver[int], ABC):
    """Checkpoints of all threads."""

    @abstractmethod
    async def afork_thread(self, source_thread_id: str, target_thread_id: str, checkpoint_id: str) -> None:
        """Give a new thread the states of another one up to a checkpoint; sub-agents' are left behind.

        `NotFoundError` when the other one has no such checkpoint.
        """
