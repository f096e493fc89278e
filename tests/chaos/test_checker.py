"""The checker itself: a judge that finds nothing is only worth something if it would."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from chaos.checker import judge
from chaos.history import Acknowledged, Aftermath, Answer, Cancelled, History, Reading, ThreadAfter
from chaos.plan import Kind, Target, plan_faults
from support.sse import Frame

from deerflow.runtime.event_log import CRASH_GAP

RUN = Acknowledged("run-1", "thread-1", "c0r1", "enqueue")
WORDS = [{"type": "human", "content": "do c0r1."}, {"type": "ai", "content": "did c0r1. Well."}]


def frame(seq: int, kind: str = "messages", data: str = "{}") -> Frame:
    return Frame(kind, f"1-{seq}", f"event: {kind}\ndata: {data}\nid: 1-{seq}".encode())


def attempt(number: int, first: int, count: int) -> list[Frame]:
    """Return what one attempt writes, without an end."""
    begin = frame(first, "metadata", f'{{"attempt": {number}}}')
    return [begin, *(frame(first + index) for index in range(1, count))]


LOG = [*attempt(1, 0, 5), *attempt(2, 5 + CRASH_GAP, 3), frame(8 + CRASH_GAP, "end", "null")]


def answer(status: str = "success", *, gateway: str = "g1", attempts: int = 2) -> Answer:
    return Answer(RUN.run_id, gateway, status, attempts)


def history(frames: Sequence[Frame] = LOG, *, has_ended: bool = True) -> History:
    return History(runs=[RUN], readings=[Reading(RUN.run_id, list(frames), 3, has_ended)])


def aftermath(log: Sequence[Frame] = LOG, **changes: object) -> Aftermath:
    thread = ThreadAfter("thread-1", "idle", ["run-1"], WORDS, [("b", "a"), ("a", None)], ["c0r1:0"])
    after = Aftermath({RUN.run_id: [answer()]}, {RUN.run_id: [log, log]}, {"thread-1": thread}, ())
    return replace(after, **changes)


def thread(**changes: object) -> dict[str, ThreadAfter]:
    return {"thread-1": replace(aftermath().threads["thread-1"], **changes)}


def found(seen: History, after: Aftermath) -> str:
    return "\n".join(judge(seen, after).violations)


def test_a_history_without_fault_is_found_so() -> None:
    assert found(history(), aftermath()) == ""


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([], "is lost"),
        ([answer("running")], "never ended"),
        ([answer("error")], "broke"),
        ([answer(), answer("interrupted", gateway="g2")], "more than one final state"),
    ],
)
def test_a_run_without_exactly_one_final_state_is_found(answers: list[Answer], told: str) -> None:
    assert told in found(history(), aftermath(answers={RUN.run_id: answers}))


def test_a_final_state_that_changes_later_is_found() -> None:
    seen = history()
    seen.answers += [answer("running"), answer("interrupted"), answer("running")]

    assert "more than one final state" in found(seen, aftermath())


def test_a_rollback_that_did_not_happen_is_found() -> None:
    seen = history()
    seen.cancels.append(Cancelled(RUN.run_id, "rollback"))

    assert "was to be rolled back" in found(seen, aftermath())


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        (LOG[:3] + LOG[4:], "missed 1 events"),
        (LOG[:4] + LOG[3:], "twice or out of order"),
        ([LOG[1], LOG[0], *LOG[2:]], "twice or out of order"),
        ([*LOG[:2], frame(2, data="other"), *LOG[3:]], "something else than the log has: [2]"),
        ([*LOG[:-1], frame(8 + CRASH_GAP), frame(9 + CRASH_GAP, "end")], "something else"),
        ([*LOG[:5], frame(5), *LOG[5:]], "1 events that are not in the log: [5]"),
    ],
)
def test_a_reader_that_was_told_something_else_is_found(frames: list[Frame], told: str) -> None:
    assert told in found(history(frames), aftermath())


def test_a_reader_that_never_got_to_the_end_is_found() -> None:
    assert "never saw its end" in found(history(LOG[:4], has_ended=False), aftermath())


def test_events_of_a_fenced_attempt_are_found() -> None:
    late = [*LOG[:5], frame(5), *LOG[5:]]

    assert "attempt 2 began behind 4, and 5 was added" in found(history(late), aftermath(late))


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (LOG[:-1], "has ends at []"),
        ([*LOG, frame(9 + CRASH_GAP, "end", "null")], "has ends at [8, 9]"),
        (LOG[:2] + LOG[3:], "attempts begin with"),
    ],
)
def test_a_log_that_is_torn_is_found(log: list[Frame], told: str) -> None:
    assert told in found(history(log), aftermath(log))


def test_gateways_that_disagree_about_a_log_are_found() -> None:
    assert "not the same from everywhere" in found(history(), aftermath(logs={RUN.run_id: [LOG, LOG[:-2]]}))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"parents": [("c", "a"), ("b", "a"), ("a", None)]}, "two attempts wrote"),
        ({"parents": [("b", "gone"), ("a", None)]}, "which is not there"),
        ({"runs": ["run-1", "run-2"]}, "never acknowledged: ['run-2']"),
        ({"runs": []}, "never acknowledged: ['run-1']"),
        ({"status": "busy"}, "still busy"),
        ({"messages": WORDS[:1]}, "of its words"),
        ({"messages": [*WORDS, WORDS[0]]}, "of its words"),
        ({"effects": ["c0r1:0"] * 3}, "3 times in 2 attempts"),
        ({"effects": ["other:0"]}, "belongs to no run"),
        (
            {"messages": [*WORDS, {"type": "tool", "status": "success", "content": "c0r1:7\n"}]},
            "reported as done",
        ),
    ],
)
def test_a_thread_that_is_not_what_its_runs_made_is_found(changes: dict[str, object], told: str) -> None:
    assert told in found(history(), aftermath(threads=thread(**changes)))


def test_what_is_left_of_an_undone_run_is_found() -> None:
    undone = replace(answer("interrupted"), stop_reason="rolled_back")

    assert "was undone" in found(history(), aftermath(answers={RUN.run_id: [undone]}))


def test_orphans_are_found() -> None:
    assert "orphan process: 7 sleep" in found(history(), aftermath(orphans=["7 sleep"]))


def test_a_seed_always_makes_the_same_plan() -> None:
    targets = [Target("worker", weight=3), Target("database", kinds=(Kind.KILL, Kind.STOP))]

    assert plan_faults(7, targets, 50) == plan_faults(7, targets, 50)
    assert plan_faults(7, targets, 50) != plan_faults(8, targets, 50)
    assert {fault.kind for fault in plan_faults(7, targets, 50)} == set(Kind)
