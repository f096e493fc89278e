"""A run in progress in this process, and how it is told to stop."""

import asyncio
from enum import StrEnum

from langgraph.runtime import RunControl

from deerflow.domain import CancelAction


class Stop(StrEnum):
    """Why a run in progress is told to stop."""

    INTERRUPT = "interrupt"
    ROLLBACK = "rollback"
    TIMEOUT = "timeout"
    HANDOVER = "handover"
    """This process goes away; another one goes on with the run."""
    LOST = "lost"
    """Another process already has the run."""


STOP_OF = {CancelAction.INTERRUPT: Stop.INTERRUPT, CancelAction.ROLLBACK: Stop.ROLLBACK}


class RunHandle:
    """Stops one run: at once, or at its next step."""

    def __init__(self, stop: Stop | None = None, *, attempt: int = 1) -> None:
        """Args: `stop` is set for a run that was told to stop before it came here."""
        self.stop = stop
        self.attempt = attempt
        self.control = RunControl()
        self.task: asyncio.Task[None] | None = None
        self.has_started = False
        """Its log has begun; cancelled before that, the task could not write the run's end."""
        self.is_settling = False
        """The run is over; a cancel would only cut off the writing of its end."""
        self.is_left_behind = False
        """It could not be given back: whoever goes on with it has to wait for its lease."""

    def tell(self, why: Stop) -> None:
        """Stop the run at once; of two reasons the first counts, but a rollback adds to an interrupt."""
        if self.stop is Stop.INTERRUPT and why is Stop.ROLLBACK and not self.is_settling:
            self.stop = why
        if self.stop is not None or self.is_settling:
            return
        self.stop = why
        if self.has_started and self.task is not None:
            self.task.cancel()

    async def done(self) -> None:
        """Return when the run is not driven here any more; being cancelled leaves the run alone."""
        if self.task is not None:
            await asyncio.wait([self.task])

    def drain(self) -> None:
        """Stop the run before its next step."""
        self.control.request_drain()
