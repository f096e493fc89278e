"""Conversations are learnt from once, after a pause, and never affect a run."""

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

from .conftest import ANN, NewConversation


class RecordingLearner:
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
        """Wait until so many conversations were learnt from, and the last one is done with."""
        await self.until(lambda: len(self.learned) >= count)
        await self.learner.flush(60)

    def said(self) -> list[list[str]]:
        return [list(conversation.said) for conversation in self.learned]


@pytest.fixture
async def recorder() -> RecordingLearner:
    return RecordingLearner()


async def test_what_is_said_before_a_pause_is_learnt_in_one_go(
    recorder: RecordingLearner, conversation: NewConversation
) -> None:
    for text in ("one", "two", "three"):
        recorder.learner.enqueue(conversation(text))
    recorder.learner.enqueue(conversation("other", thread="t2"))
    await recorder.has_heard(2)

    assert sorted(recorder.said()) == [["one", "two", "three"], ["other"]]


async def test_a_talk_that_waits_holds_nothing_of_the_run_it_came_from(
    recorder: RecordingLearner, conversation: NewConversation
) -> None:
    class Carried:
        """Something large that only a run needs."""

    carried: ContextVar[Carried] = ContextVar("carried")

    def run() -> "weakref.ref[Carried]":
        carried.set(Carried())
        recorder.learner.enqueue(conversation("I live in Bern."))
        return weakref.ref(carried.get())

    left = copy_context().run(run)
    gc.collect()

    assert left() is None
    assert not recorder.learner.is_idle
    await recorder.learner.flush(60)


async def test_who_never_pauses_is_learnt_from_nevertheless(
    recorder: RecordingLearner, conversation: NewConversation
) -> None:
    for number in range(20):
        recorder.learner.enqueue(conversation(str(number), debounce_seconds=300))
    await recorder.has_heard(1)

    assert [len(said) for said in recorder.said()] == [20]


async def test_conversations_of_one_user_are_learnt_from_in_turn_and_of_many_at_once(
    recorder: RecordingLearner, conversation: NewConversation
) -> None:
    for number in range(6):
        recorder.learner.enqueue(conversation("a", thread=f"t{number}"))
    await recorder.has_heard(6)
    alone = recorder.most_at_once
    recorder.gate.clear()
    for number in range(9):
        recorder.learner.enqueue(conversation("b", scope=Scope(f"u{number}")))
    await recorder.until(lambda: recorder.at_once == MAX_AT_ONCE)
    recorder.gate.set()
    await recorder.has_heard(15)

    assert alone == 1
    assert recorder.most_at_once == MAX_AT_ONCE


async def test_a_talk_that_failed_is_heard_again_with_what_was_said_since(
    recorder: RecordingLearner, conversation: NewConversation
) -> None:
    recorder.gate.clear()
    recorder.answers = [False]
    recorder.learner.enqueue(conversation("first"))
    await recorder.until(lambda: recorder.at_once == 1)
    recorder.learner.enqueue(conversation("second", debounce_seconds=300))
    recorder.gate.set()
    await recorder.until(lambda: len(recorder.learned) == 1)
    await asyncio.wait_for(recorder.learner.flush(60), 60)
    await recorder.has_heard(2)

    assert recorder.said() == [["first"], ["first", "second"]]


async def test_a_talk_that_fails_again_and_again_is_given_up(
    recorder: RecordingLearner, conversation: NewConversation, caplog: pytest.LogCaptureFixture
) -> None:
    recorder.answers = [False] * 10

    recorder.learner.enqueue(conversation("first"))
    await recorder.has_heard(3)

    assert recorder.learner.is_idle
    assert "memory was not updated from thread t1" in caplog.text


async def test_a_model_that_fails_is_not_asked_again_with_every_turn_of_a_long_talk(
    recorder: RecordingLearner, conversation: NewConversation
) -> None:
    recorder.answers = [False]

    for number in range(20):
        recorder.learner.enqueue(conversation(str(number), debounce_seconds=300))
    await recorder.until(lambda: len(recorder.learned) == 1)
    for number in range(5):
        recorder.learner.enqueue(conversation(str(number), debounce_seconds=300))
        await asyncio.sleep(0.01)  # time enough to be asked, if it were
    await recorder.learner.flush(60)

    assert [len(said) for said in recorder.said()] == [20, 25]


async def test_whatever_goes_wrong_is_logged_and_nothing_else(
    recorder: RecordingLearner, conversation: NewConversation, caplog: pytest.LogCaptureFixture
) -> None:
    recorder.answers = [ValueError("boom")]

    recorder.learner.enqueue(conversation("first"))
    await recorder.has_heard(1)

    assert "boom" in caplog.text
    recorder.learner.enqueue(conversation("next"))
    await recorder.has_heard(2)
    assert recorder.said()[-1] == ["next"]


async def test_a_queue_that_is_full_loses_the_oldest(
    recorder: RecordingLearner, conversation: NewConversation, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(4):
        recorder.learner.enqueue(
            conversation(str(number), thread=f"t{number}", queue_max_depth=2, debounce_seconds=300)
        )
    await recorder.learner.flush(60)

    assert recorder.said() == [["2"], ["3"]]
    assert "queue_max_depth" in caplog.text


async def test_what_is_to_be_forgotten_is_not_learnt(
    recorder: RecordingLearner, conversation: NewConversation
) -> None:
    recorder.gate.clear()
    recorder.learner.enqueue(conversation("a", thread="t1"))
    await recorder.until(lambda: recorder.at_once == 1)
    recorder.learner.enqueue(conversation("b", thread="t2", debounce_seconds=300))
    recorder.learner.enqueue(conversation("c", thread="t3", scope=Scope("ben"), debounce_seconds=300))
    recorder.learner.forget(scope=ANN)
    recorder.learner.forget(thread_id="t3")
    recorder.gate.set()
    await recorder.learner.flush(60)

    assert recorder.learned == []
    assert recorder.learner.is_idle


async def test_the_end_waits_for_what_is_being_learnt_but_not_for_long(
    recorder: RecordingLearner, conversation: NewConversation, caplog: pytest.LogCaptureFixture
) -> None:
    recorder.learner.enqueue(conversation("quick", debounce_seconds=300))
    await recorder.learner.flush(60)
    recorder.gate.clear()
    recorder.learner.enqueue(conversation("slow", debounce_seconds=300))
    with caplog.at_level(logging.WARNING):
        await recorder.learner.aclose(0.01)
    recorder.learner.enqueue(conversation("late"))

    assert recorder.said() == [["quick"]]
    assert "1 conversations were not looked through for facts before the end" in caplog.text
    assert recorder.learner.is_idle


async def test_who_must_end_at_once_gives_up_what_waits_and_what_is_being_learnt(
    recorder: RecordingLearner, conversation: NewConversation, caplog: pytest.LogCaptureFixture
) -> None:
    recorder.gate.clear()
    recorder.learner.enqueue(conversation("begun"))
    await recorder.until(lambda: recorder.at_once == 1)
    recorder.learner.enqueue(conversation("waiting", thread="t2", debounce_seconds=300))
    closing = asyncio.create_task(recorder.learner.aclose(300))
    recorder.learner.cancel_all()
    await asyncio.wait_for(closing, 60)

    assert (recorder.learned, recorder.learner.is_idle) == ([], True)
    assert "2 conversations were not looked through" in caplog.text


async def test_conversations_of_an_agent_and_of_its_user_are_apart(
    recorder: RecordingLearner, conversation: NewConversation
) -> None:
    recorder.learner.enqueue(conversation("to the lead"))
    recorder.learner.enqueue(replace(conversation("to the cook"), scope=replace(ANN, agent_name="cook")))
    await recorder.has_heard(2)

    assert sorted(recorder.said()) == [["to the cook"], ["to the lead"]]
