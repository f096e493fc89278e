"""Occurrences: the result of a cron at one time, a run or the reason why there is none."""

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from deerflow.domain import RunRecord
from deerflow.errors import DeerFlowError, ThreadBusyError
from deerflow.scheduler.cron import Cron

_MOMENTS = ("scheduled_for", "created_at")


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One time at which a cron was due or was triggered manually."""

    id: str
    cron_id: str
    scheduled_for: datetime
    created_at: datetime
    trigger: Literal["scheduled", "manual"] = "scheduled"
    run_id: str | None = None
    thread_id: str | None = None
    error: str | None = None
    is_skipped: bool = False
    """True if the thread was busy."""


def occurrence_of(
    cron: Cron, tick: datetime, run: RunRecord | None, problem: DeerFlowError | None, *, now: datetime
) -> Occurrence:
    """Return the result of a tick; its id is the same on every server."""
    return Occurrence(
        id=str(uuid.uuid5(uuid.NAMESPACE_URL, f"{cron.id}/{tick.isoformat()}")),
        cron_id=cron.id,
        scheduled_for=tick,
        created_at=now,
        run_id=run.id if run else None,
        thread_id=run.thread_id if run else cron.thread_id,
        error=str(problem) if problem else None,
        is_skipped=isinstance(problem, ThreadBusyError),
    )


def dump_occurrence(occurrence: Occurrence) -> dict[str, Any]:
    """Serialize an occurrence to a JSON object."""
    fields = asdict(occurrence)
    return {name: value.isoformat() if name in _MOMENTS else value for name, value in fields.items()}


def load_occurrence(fields: Mapping[str, Any]) -> Occurrence:
    """Deserialize the output of `dump_occurrence`."""
    known = {name: value for name, value in fields.items() if name in Occurrence.__dataclass_fields__}
    return Occurrence(**{**known, **{name: datetime.fromisoformat(fields[name]) for name in _MOMENTS}})
