"""The handle of a run in progress in this process, with which it is stopped."""

import asyncio
from enum import StrEnum

from langgraph.runtime import RunControl

from deerflow.domain import CancelAction


class Stop(StrEnum):
    """Why a run in progress is stopped."""

    INTERRUPT = "interrupt"
    ROLLBACK = "rollback"
    TIMEOUT = "timeout"
    HANDOVER = "handover"
    """This process shuts down; another one resumes the run."""
    LOST = "lost"
    """Another process already owns the run."""


STOP_OF = {CancelAction.INTERRUPT: Stop.INTERRUPT, CancelAction.ROLLBACK: Stop.ROLLBACK}


class RunHandle:
    """Stops one run: immediately, or at its next step."""

    def __init__(self, stop: Stop | None = None, *, attempt: int = 1) -> None:
        """Args: `stop` is set for a run that was cancelled before this process claimed it."""
        self.stop = stop
        self.attempt = attempt
        self.control = RunControl()
        self.task: asyncio.Task[None] | None = None
        self.has_started = False
        """Its log has begun; cancelled before that, the task could not store the run's end."""
        self.is_settling = False
        """The run has ended; a cancel would only interrupt the storing of its end."""
        self.is_left_behind = False
        """It could not be released: the process that resumes it has to wait for its lease to expire."""

    def tell(self, why: Stop) -> None:
        """Stop the run immediately; the first reason counts, but a rollback replaces an interrupt."""
        if self.stop is Stop.INTERRUPT and why is Stop.ROLLBACK and not self.is_settling:
            self.stop = why
        if self.stop is not None or self.is_settling:
            return
        self.stop = why
        if self.has_started and self.task is not None:
            self.task.cancel()

    async def done(self) -> None:
        """Wait until this process no longer executes the run; cancelling the wait does not stop the run."""
        if self.task is not None:
            await asyncio.wait([self.task])

    def drain(self) -> None:
        """Stop the run before its next step."""
        self.control.request_drain()
