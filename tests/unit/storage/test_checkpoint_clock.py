"""A thread goes on behind its last turn, also where the clocks of those who write it disagree."""

import time

import pytest
from langgraph.checkpoint.base.id import uuid6

from deerflow.storage.sql.checkpoint_clock import count_on_from

HOUR_NS = 3600 * 10**9


@pytest.fixture(autouse=True)
def own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what is counted here from the ids of other tests."""
    monkeypatch.setattr("langgraph.checkpoint.base.id._last_v6_timestamp", None)


def an_hour_ahead(monkeypatch: pytest.MonkeyPatch) -> str:
    ahead = time.time_ns() + HOUR_NS
    with monkeypatch.context() as there:
        there.setattr(time, "time_ns", lambda: ahead)
        there.setattr("langgraph.checkpoint.base.id._last_v6_timestamp", None)
        return str(uuid6(clock_seq=3))


def test_ids_come_behind_one_that_a_faster_clock_made(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = an_hour_ahead(monkeypatch)

    count_on_from(seen)
    first, second = str(uuid6(clock_seq=-1)), str(uuid6(clock_seq=0))

    assert seen < first < second


def test_an_older_id_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, old = an_hour_ahead(monkeypatch), str(uuid6())

    count_on_from(seen)
    count_on_from(old)

    assert str(uuid6()) > seen


@pytest.mark.parametrize(
    "other", ["ffffffff-ffff-ffff-ffff-ffffffffffff", "4ad1c7a4-9081-470f-848e-1ff6bb108785", "first", ""]
)
def test_an_id_that_is_not_made_of_the_time_changes_nothing(other: str) -> None:
    before = str(uuid6())

    count_on_from(other)

    assert before < str(uuid6()) < "2"
