"""Talks wait for a pause, are learnt from once, and never trouble anybody."""

import asyncio
import gc
import logging
import weakref
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from dataclasses import replace

import pytest

from deerflow.memory import PendingConversation, Scope
from deerflow.memory.learner import MAX_AT_ONCE, Learner

from .conftest import ANN, NewTalk


class Pupil:
    """Learns when it may, and notes what it learned."""

    def __init__(self) -> None:
        self.learned: list[PendingConversation] = []
        self.answers: list[bool | Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.at_once = self.most_at_once = 0
        self.learner = Learner(self.learn)
        self._changed = asyncio.Event()

    async def learn(self, conversation: PendingConversation) -> bool:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self._changed.set()
        try:
            await self.gate.wait()
        finally:
            self.at_once -= 1
        self.learned.append(conversation)
        self._changed.set()
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def has_heard(self, count: int) -> None:
        """Wait until so many talks were learnt from, and the last one is done with."""
        await self.until(lambda: len(self.learned) >= count)
        await self.learner.flush(60)

    def said(self) -> list[list[str]]:
        return [list(conversation.said) for conversation in self.learned]


@pytest.fixture
async def learning() -> Pupil:
    return Pupil()


async def test_what_is_said_before_a_pause_is_learnt_in_one_go(
    learning: Pupil, conversation: NewTalk
) -> None:
    for text in ("one", "two", "three"):
        learning.learner.enqueue(conversation(text))
    learning.learner.enqueue(conversation("other", thread="t2"))
    await learning.has_heard(2)

    assert sorted(learning.said()) == [["one", "two", "three"], ["other"]]


async def test_a_talk_that_waits_holds_nothing_of_the_run_it_came_from(
    learning: Pupil, conversation: NewTalk
) -> None:
    class Carried:
        """Something large that only a run needs."""

    carried: ContextVar[Carried] = ContextVar("carried")

    def run() -> "weakref.ref[Carried]":
        carried.set(Carried())
        learning.learner.enqueue(conversation("I live in Bern."))
        return weakref.ref(carried.get())

    left = copy_context().run(run)
    gc.collect()

    assert left() is None
    assert not learning.learner.is_idle
    await learning.learner.flush(60)


async def test_who_never_pauses_is_learnt_from_nevertheless(learning: Pupil, conversation: NewTalk) -> None:
    for number in range(20):
        learning.learner.enqueue(conversation(str(number), debounce_seconds=300))
    await learning.has_heard(1)

    assert [len(said) for said in learning.said()] == [20]


async def test_talks_of_one_user_are_learnt_from_in_turn_and_of_many_at_once(
    learning: Pupil, conversation: NewTalk
) -> None:
    for number in range(6):
        learning.learner.enqueue(conversation("a", thread=f"t{number}"))
    await learning.has_heard(6)
    alone = learning.most_at_once
    learning.gate.clear()
    for number in range(9):
        learning.learner.enqueue(conversation("b", scope=Scope(f"u{number}")))
    await learning.until(lambda: learning.at_once == MAX_AT_ONCE)
    learning.gate.set()
    await learning.has_heard(15)

    assert alone == 1
    assert learning.most_at_once == MAX_AT_ONCE


async def test_a_talk_that_failed_is_heard_again_with_what_was_said_since(
    learning: Pupil, conversation: NewTalk
) -> None:
    learning.gate.clear()
    learning.answers = [False]
    learning.learner.enqueue(conversation("first"))
    await learning.until(lambda: learning.at_once == 1)
    learning.learner.enqueue(conversation("second", debounce_seconds=300))
    learning.gate.set()
    await learning.until(lambda: len(learning.learned) == 1)
    await asyncio.wait_for(learning.learner.flush(60), 60)
    await learning.has_heard(2)

    assert learning.said() == [["first"], ["first", "second"]]


async def test_a_talk_that_fails_again_and_again_is_given_up(
    learning: Pupil, conversation: NewTalk, caplog: pytest.LogCaptureFixture
) -> None:
    learning.answers = [False] * 10

    learning.learner.enqueue(conversation("first"))
    await learning.has_heard(3)

    assert learning.learner.is_idle
    assert "memory was not updated from thread t1" in caplog.text


async def test_a_model_that_fails_is_not_asked_again_with_every_turn_of_a_long_talk(
    learning: Pupil, conversation: NewTalk
) -> None:
    learning.answers = [False]

    for number in range(20):
        learning.learner.enqueue(conversation(str(number), debounce_seconds=300))
    await learning.until(lambda: len(learning.learned) == 1)
    for number in range(5):
        learning.learner.enqueue(conversation(str(number), debounce_seconds=300))
        await asyncio.sleep(0.01)  # time enough to be asked, if it were
    await learning.learner.flush(60)

    assert [len(said) for said in learning.said()] == [20, 25]


async def test_whatever_goes_wrong_is_logged_and_nothing_else(
    learning: Pupil, conversation: NewTalk, caplog: pytest.LogCaptureFixture
) -> None:
    learning.answers = [ValueError("boom")]

    learning.learner.enqueue(conversation("first"))
    await learning.has_heard(1)

    assert "boom" in caplog.text
    learning.learner.enqueue(conversation("next"))
    await learning.has_heard(2)
    assert learning.said()[-1] == ["next"]


async def test_a_queue_that_is_full_loses_the_oldest(
    learning: Pupil, conversation: NewTalk, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(4):
        learning.learner.enqueue(
            conversation(str(number), thread=f"t{number}", queue_max_depth=2, debounce_seconds=300)
        )
    await learning.learner.flush(60)

    assert learning.said() == [["2"], ["3"]]
    assert "queue_max_depth" in caplog.text


async def test_what_is_to_be_forgotten_is_not_learnt(learning: Pupil, conversation: NewTalk) -> None:
    learning.gate.clear()
    learning.learner.enqueue(conversation("a", thread="t1"))
    await learning.until(lambda: learning.at_once == 1)
    learning.learner.enqueue(conversation("b", thread="t2", debounce_seconds=300))
    learning.learner.enqueue(conversation("c", thread="t3", scope=Scope("ben"), debounce_seconds=300))
    learning.learner.forget(scope=ANN)
    learning.learner.forget(thread_id="t3")
    learning.gate.set()
    await learning.learner.flush(60)

    assert learning.learned == []
    assert learning.learner.is_idle


async def test_the_end_waits_for_what_is_being_learnt_but_not_for_long(
    learning: Pupil, conversation: NewTalk, caplog: pytest.LogCaptureFixture
) -> None:
    learning.learner.enqueue(conversation("quick", debounce_seconds=300))
    await learning.learner.flush(60)
    learning.gate.clear()
    learning.learner.enqueue(conversation("slow", debounce_seconds=300))
    with caplog.at_level(logging.WARNING):
        await learning.learner.aclose(0.01)
    learning.learner.enqueue(conversation("late"))

    assert learning.said() == [["quick"]]
    assert "1 conversations were not looked through for facts before the end" in caplog.text
    assert learning.learner.is_idle


async def test_who_must_end_at_once_gives_up_what_waits_and_what_is_being_learnt(
    learning: Pupil, conversation: NewTalk, caplog: pytest.LogCaptureFixture
) -> None:
    learning.gate.clear()
    learning.learner.enqueue(conversation("begun"))
    await learning.until(lambda: learning.at_once == 1)
    learning.learner.enqueue(conversation("waiting", thread="t2", debounce_seconds=300))
    closing = asyncio.create_task(learning.learner.aclose(300))
    learning.learner.cancel_all()
    await asyncio.wait_for(closing, 60)

    assert (learning.learned, learning.learner.is_idle) == ([], True)
    assert "2 conversations were not looked through" in caplog.text


async def test_talks_of_an_agent_and_of_its_user_are_apart(learning: Pupil, conversation: NewTalk) -> None:
    learning.learner.enqueue(conversation("to the lead"))
    learning.learner.enqueue(replace(conversation("to the cook"), scope=replace(ANN, agent_name="cook")))
    await learning.has_heard(2)

    assert sorted(learning.said()) == [["to the cook"], ["to the lead"]]
