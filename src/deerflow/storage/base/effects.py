"""Which tool calls were begun and done, so that none is made twice after a crash."""

from abc import ABC, abstractmethod
from enum import StrEnum


class EffectState(StrEnum):
    """What is known of a tool call of an earlier attempt."""

    STARTED = "started"
    FINISHED = "finished"


class EffectLog(ABC):
    """Which tool calls of runs in flight were begun and done."""

    @abstractmethod
    async def start(self, run_id: str, *, attempt: int, call: bytes) -> EffectState | None:
        """Note that a call begins; return what an earlier attempt left of the same call.

        `StaleAttemptError` when another attempt owns the run. A second start in the same attempt knows
        nothing of an earlier one: what is asked for again after an answer is meant.
        """

    @abstractmethod
    def finish(self, run_id: str, *, attempt: int, call: bytes) -> None:
        """Note that a call is done, without waiting for it to be stored."""
