"""The outcomes of runs, with error texts for users."""

import logging
from typing import Any

from langgraph.errors import EmptyInputError, GraphRecursionError

from deerflow.domain import RunRecord, RunStatus, ThreadStatus
from deerflow.errors import DeerFlowError, ModelError
from deerflow.models import explain
from deerflow.observability.logs import Redactor
from deerflow.runtime.handle import Stop
from deerflow.runtime.run_stats import RunStats
from deerflow.storage import RunEnd

logger = logging.getLogger(__name__)

ROLLED_BACK = "rolled_back"
"""The stop reason of a run that was rolled back."""
_LONGEST_ERROR = 2000


def finished(tally: RunStats) -> RunEnd:
    """Return the end of a run whose graph finished or was interrupted by a question."""
    waiting = ThreadStatus.INTERRUPTED if tally.is_waiting else ThreadStatus.IDLE
    return _end(RunStatus.SUCCESS, waiting, tally, asks=tally.is_asking)


def stopped(stop: Stop, tally: RunStats) -> RunEnd:
    """Return the end of a run that was stopped."""
    match stop:
        case Stop.TIMEOUT:
            return _end(
                RunStatus.TIMEOUT,
                ThreadStatus.ERROR,
                tally,
                error="The run took longer than runs.timeout_seconds allows; what it did so far is kept.",
                stop_reason="RunTimeout",
            )
        case Stop.ROLLBACK:
            return _end(
                RunStatus.INTERRUPTED, ThreadStatus.IDLE, tally, stop_reason=ROLLED_BACK, rolls_back=True
            )
        case _:
            return _end(RunStatus.INTERRUPTED, ThreadStatus.INTERRUPTED, tally)


def failed(run: RunRecord, error: Exception, tally: RunStats, redact: Redactor) -> RunEnd:
    """Return the end of a run that failed.

    Args:
        redact: Removes secrets: a provider's error may repeat the key, and all readers of the run see it.
    """
    told = error if isinstance(error, ModelError) else explain(error)
    text = str(told) if told is not None else _words(run, error)
    return _end(
        RunStatus.ERROR,
        ThreadStatus.ERROR,
        tally,
        error=redact(text)[:_LONGEST_ERROR],
        error_in_chinese=redact(told.in_chinese)[:_LONGEST_ERROR] if told is not None else None,
        error_reason=told.reason if told is not None else None,
        stop_reason=type(error).__name__,
    )


def _words(run: RunRecord, error: Exception) -> str:
    """Return the error text of a failure that no model caused."""
    match error:
        case GraphRecursionError():
            return (
                f"The agent used all {run.request.recursion_limit} steps of this run without finishing. "
                "What it did so far is kept: send another message to go on, or raise config.recursion_limit."
            )
        case EmptyInputError():  # it was queued behind a run that left no state
            return "The run has no input, and its thread has no state to go on from. Send a message."
        case DeerFlowError():
            return str(error)
        case _:
            logger.exception("run %s failed", run.id, exc_info=error)
            return f"The run failed unexpectedly ({type(error).__name__}); the server's log says why."


def given_up(attempts: int, *, rolls_back: bool = False) -> RunEnd:
    """Return the end of a run that reached the maximum number of attempts.

    Args:
        rolls_back: It was to be rolled back, and every attempt died before its files were restored.
    """
    if rolls_back:
        text = (
            "The conversation was put back, but not the files: the run was taken up "
            f"{attempts} times and each time it was broken off. The servers' logs say more."
        )
        return RunEnd(RunStatus.INTERRUPTED, error=text, stop_reason=ROLLED_BACK, rolls_back=True)
    text = (
        f"The run was taken up {attempts} times (runs.max_attempts) and each time it was broken off: its "
        "process died, or what it did could not be stored. Not trying again; the servers' logs say more."
    )
    return RunEnd(RunStatus.ERROR, ThreadStatus.ERROR, error=text, stop_reason="TooManyAttempts")


def _end(status: RunStatus, thread_status: ThreadStatus, tally: RunStats, **more: Any) -> RunEnd:
    return RunEnd(status, thread_status, usage=tally.usage, message_count=tally.message_count, **more)
