"""A cron: a wish for runs at the times of a schedule, and which times these are."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

from croniter import CroniterError, croniter  # type: ignore[import-untyped]

from deerflow.domain import LEAD_AGENT
from deerflow.errors import InvalidInputError

_MOST_CHARS = 256
_UNSTABLE = re.compile(r"(?:^|\s)[RH](?=[\s(/]|$)", re.IGNORECASE)
"""Times drawn by lot would differ from server to server."""
_HINT = "write five fields like '0 9 * * 1-5' (minute, hour, day, month, weekday), a sixth is for seconds"
_ANY_HOUR = re.compile(r"\S+\s+\S*\*|@hourly")
_A_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Cron:
    """What is to run, and when."""

    id: str
    user_id: str
    schedule: str
    payload: Mapping[str, Any]
    """The wish for a run, as its creator wrote it."""
    created_at: datetime
    updated_at: datetime
    since: datetime
    """Only times after this count: it was made, changed or switched on again then."""
    assistant_id: str = LEAD_AGENT
    thread_id: str | None = None
    """The thread of all its runs; None: each has one of its own."""
    timezone: str | None = None
    end_time: datetime | None = None
    enabled: bool = True
    on_run_completed: Literal["delete", "keep"] | None = None
    """What becomes of a thread that was made for one run."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    once_at: datetime | None = None
    """The one time that it is for, in place of a schedule."""
    title: str | None = None
    """What people call it; one with a title keeps a list of what came of it."""

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first time after `moment`; None when it is switched off or over."""
        if not self.enabled:
            return None
        found = self._nearest(max(moment, self.since), forward=True)
        return None if found is None or (self.end_time and found > self.end_time) else found

    def due(self, now: datetime, *, last: datetime | None) -> datetime | None:
        """Return the time that a run is due for: of several that were missed, only the latest.

        Args:
            last: The time that the last run was for.
        """
        since = max(last, self.since) if last else self.since
        first = self.next_after(since)
        if first is None or first > now:
            return None
        until = min(now, self.end_time) if self.end_time else now
        latest = self._nearest(until + _A_MOMENT, forward=False)
        return max(first, latest) if latest else first

    def _nearest(self, moment: datetime, *, forward: bool) -> datetime | None:
        if self.once_at is None:
            return _walk(self.schedule, self.timezone, moment, forward=forward)
        is_there = self.once_at > moment if forward else self.once_at < moment
        return self.once_at if is_there else None


def check_schedule(schedule: str, timezone: str | None, *, now: datetime) -> None:
    """Refuse a schedule or time zone that means nothing, with what to write instead."""
    zone_of(timezone)
    if len(schedule) > _MOST_CHARS or _UNSTABLE.search(schedule) or not croniter.is_valid(schedule):
        raise InvalidInputError(f"schedule '{schedule[:80]}' is no cron expression; {_HINT}")
    if _walk(schedule, timezone, now, forward=True) is None:
        raise InvalidInputError(f"schedule '{schedule}' never comes; {_HINT}")


def zone_of(name: str | None) -> ZoneInfo:
    """Return a time zone by its IANA name; UTC when there is none."""
    try:
        return ZoneInfo(name or "UTC")
    except (KeyError, ValueError, OSError) as error:  # unknown, a path, a folder of zones
        raise InvalidInputError(
            f"timezone '{(name or '')[:80]}' is unknown; write an IANA name like 'Europe/Berlin'"
        ) from error


def _walk(schedule: str, timezone: str | None, moment: datetime, *, forward: bool) -> datetime | None:
    """Return the nearest scheduled time after or before a moment, in UTC."""
    times = croniter(schedule, moment.astimezone(zone_of(timezone)), ret_type=datetime)
    try:
        found: datetime = times.get_next() if forward else times.get_prev()
        while found.fold and not _ANY_HOUR.match(schedule):
            # When clocks are set back an hour comes twice; what is meant once a day runs once.
            found = times.get_next() if forward else times.get_prev()
    except CroniterError:  # there is none, such as February 31
        return None
    return found.astimezone(UTC)
