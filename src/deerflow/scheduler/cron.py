"""A run request with a schedule, the computation of its due times, and what came of each."""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

from croniter import CroniterError, croniter  # type: ignore[import-untyped]

from deerflow.domain import LEAD_AGENT, RunRecord
from deerflow.errors import DeerFlowError, InvalidInputError, ThreadBusyError

_MAX_CHARS = 256
_UNSTABLE = re.compile(r"(?:^|\s)[RH](?=[\s(/]|$)", re.IGNORECASE)
"""Matches croniter's random and hashed fields, whose times would differ between servers."""
_HINT = "write five fields like '0 9 * * 1-5' (minute, hour, day, month, weekday), a sixth is for seconds"
_ANY_HOUR = re.compile(r"\S+\s+\S*\*|@hourly")
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class CronJob:
    """A run request and when to start it."""

    id: str
    user_id: str
    schedule: str
    payload: Mapping[str, Any]
    """The run's request body as its creator sent it."""
    created_at: datetime
    updated_at: datetime
    since: datetime
    """Only later times count: when the cron was created, changed or re-enabled."""
    assistant_id: str = LEAD_AGENT
    thread_id: str | None = None
    """The thread of all its runs; None: each run gets a new thread."""
    timezone: str | None = None
    end_time: datetime | None = None
    enabled: bool = True
    on_run_completed: Literal["delete", "keep"] | None = None
    """Whether a thread created for one run is deleted after it."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    once_at: datetime | None = None
    """The single time to run at, in place of a schedule."""
    title: str | None = None
    """Display name; a cron with a title keeps a history of its occurrences."""

    def next_after(self, time: datetime) -> datetime | None:
        """Return the first due time after `time`; None if the cron is disabled or has ended."""
        if not self.enabled:
            return None
        found = self._nearest(max(time, self.since), forward=True)
        return None if found is None or (self.end_time and found > self.end_time) else found

    def due(self, now: datetime, *, last: datetime | None) -> datetime | None:
        """Return the time for which a run is due; of several missed times only the latest.

        Args:
            last: The time for which the last run was started.
        """
        since = max(last, self.since) if last else self.since
        first = self.next_after(since)
        if first is None or first > now:
            return None
        until = min(now, self.end_time) if self.end_time else now
        latest = self._nearest(until + _MICROSECOND, forward=False)
        return max(first, latest) if latest else first

    def _nearest(self, time: datetime, *, forward: bool) -> datetime | None:
        if self.once_at is None:
            return _adjacent(self.schedule, self.timezone, time, forward=forward)
        is_ahead = self.once_at > time if forward else self.once_at < time
        return self.once_at if is_ahead else None


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
    cron: CronJob, tick: datetime, run: RunRecord | None, problem: DeerFlowError | None, *, now: datetime
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


def check_schedule(schedule: str, timezone: str | None, *, now: datetime) -> None:
    """Raise `InvalidInputError` for an invalid schedule or time zone; the message shows a valid form."""
    zone_of(timezone)
    if len(schedule) > _MAX_CHARS or _UNSTABLE.search(schedule) or not croniter.is_valid(schedule):
        raise InvalidInputError(f"schedule '{schedule[:80]}' is no cron expression; {_HINT}")
    if _adjacent(schedule, timezone, now, forward=True) is None:
        raise InvalidInputError(f"schedule '{schedule}' never comes; {_HINT}")


def zone_of(name: str | None) -> ZoneInfo:
    """Return a time zone by its IANA name; UTC for None."""
    try:
        return ZoneInfo(name or "UTC")
    except (KeyError, ValueError, OSError) as error:  # unknown, a path, a folder of zones
        raise InvalidInputError(
            f"timezone '{(name or '')[:80]}' is unknown; write an IANA name like 'Europe/Berlin'"
        ) from error


def _adjacent(schedule: str, timezone: str | None, time: datetime, *, forward: bool) -> datetime | None:
    """Return the nearest scheduled time after or before a time, in UTC."""
    times = croniter(schedule, time.astimezone(zone_of(timezone)), ret_type=datetime)
    try:
        found: datetime = times.get_next() if forward else times.get_prev()
        while found.fold and not _ANY_HOUR.match(schedule):
            # When clocks are set back, an hour occurs twice; a daily schedule runs only once.
            found = times.get_next() if forward else times.get_prev()
    except CroniterError:  # there is none, such as February 31
        return None
    return found.astimezone(UTC)
