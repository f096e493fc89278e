"""The times of a schedule."""

from datetime import UTC, datetime, timedelta

import pytest

from deerflow.errors import InvalidInputError
from deerflow.scheduler import CronJob, check_schedule

START = datetime(2026, 11, 16, 10, 0, tzinfo=UTC)


def cron(schedule: str, since: datetime = START, **more: object) -> CronJob:
    return CronJob(
        id="c1",
        user_id="u",
        schedule=schedule,
        payload={},
        created_at=since,
        updated_at=since,
        since=since,
        **more,  # type: ignore[arg-type]
    )


def test_a_run_is_due_when_its_time_has_come_and_not_before() -> None:
    every = cron("*/5 * * * *")

    assert every.due(START + timedelta(minutes=4, seconds=59), last=None) is None
    assert every.due(START + timedelta(minutes=5), last=None) == START + timedelta(minutes=5)


def test_missed_times_are_made_up_for_once() -> None:
    every = cron("*/5 * * * *")
    now = START + timedelta(hours=3, minutes=2)

    tick = every.due(now, last=START + timedelta(minutes=5))

    assert tick == START + timedelta(hours=3)
    assert every.due(now, last=tick) is None


def test_nothing_is_due_after_the_end_or_while_switched_off() -> None:
    end = START + timedelta(minutes=7)
    ending = cron("*/5 * * * *", end_time=end)

    assert ending.due(START + timedelta(hours=1), last=None) == START + timedelta(minutes=5)
    assert ending.due(START + timedelta(hours=1), last=START + timedelta(minutes=5)) is None
    assert ending.next_after(START + timedelta(minutes=5)) is None
    assert cron("*/5 * * * *", enabled=False).due(START + timedelta(hours=1), last=None) is None


def test_times_before_a_change_do_not_count() -> None:
    changed = cron("*/5 * * * *", since=START + timedelta(hours=1))

    assert changed.due(START + timedelta(hours=1, minutes=1), last=START) is None


def test_seconds_have_a_field_of_their_own() -> None:
    every_second = cron("* * * * * *")

    assert every_second.next_after(START) == START + timedelta(seconds=1)
    now = START + timedelta(seconds=2.5)
    assert every_second.due(now, last=START + timedelta(seconds=1)) == START + timedelta(seconds=2)


def test_a_time_zone_is_followed_through_its_clock_changes() -> None:
    before = datetime(2026, 3, 7, 12, tzinfo=UTC)
    nine = cron("0 9 * * *", since=before, timezone="America/New_York")

    first = nine.next_after(before)
    second = nine.next_after(first or before)

    assert first == datetime(2026, 3, 7, 14, tzinfo=UTC)  # five hours behind
    assert second == datetime(2026, 3, 8, 13, tzinfo=UTC)  # four hours behind


def test_an_hour_that_comes_twice_has_a_daily_run_once_and_an_hourly_one_twice() -> None:
    before = datetime(2026, 11, 1, 4, tzinfo=UTC)
    daily = cron("30 1 * * *", since=before, timezone="America/New_York")
    hourly = cron("30 * * * *", since=before, timezone="America/New_York")

    first = daily.next_after(before)
    assert first == datetime(2026, 11, 1, 5, 30, tzinfo=UTC)
    assert daily.next_after(first) == datetime(2026, 11, 2, 6, 30, tzinfo=UTC)
    assert daily.due(datetime(2026, 11, 1, 7, tzinfo=UTC), last=None) == first
    assert hourly.next_after(first) == datetime(2026, 11, 1, 6, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    "schedule",
    ["", "* * * *", "61 * * * *", "a b c d e", "0 0 31 2 *", "R * * * *", "H H * * *", "*/0 * * * *",
     "@reboot", "* " * 300, "1," * 200 + "1 * * * *", "0 0 1 1 * 0 1999"],
)  # fmt: skip
def test_a_schedule_that_means_nothing_is_refused(schedule: str) -> None:
    with pytest.raises(InvalidInputError, match="write five fields"):
        check_schedule(schedule, None, now=START)


@pytest.mark.parametrize("zone", ["Nowhere/City", "../../etc/passwd", "/etc/passwd", "America", "x" * 5000])
def test_an_unknown_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidInputError, match="IANA"):
        check_schedule("0 9 * * *", zone, now=START)


@pytest.mark.parametrize("schedule", ["0 9 * * 1-5", "@daily", "*/10 * * * * *", "0 0 29 2 *", "0 8 L * *"])
def test_usual_schedules_are_taken(schedule: str) -> None:
    check_schedule(schedule, "Europe/Berlin", now=START)
