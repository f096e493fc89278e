"""Log of started and finished tool calls. Keeps a crash from doing things twice."""

from abc import ABC, abstractmethod
from enum import StrEnum


class EffectState(StrEnum):
    """State of a tool call from an earlier attempt."""

    STARTED = "started"
    FINISHED = "finished"


class EffectLog(ABC):
    """Which tool calls of runs in flight were started and finished."""

    @abstractmethod
    async def start(self, run_id: str, *, attempt: int, call: bytes) -> EffectState | None:
        """Record the start of a call; return the state that an earlier attempt left for the same call.

        `StaleAttemptError` when another attempt owns the run. A second start in the same attempt ignores the
        first one: a call that is repeated after its result is intentional.
        """

    @abstractmethod
    def finish(self, run_id: str, *, attempt: int, call: bytes) -> None:
        """Record the end of a call, without waiting for it to be stored."""
