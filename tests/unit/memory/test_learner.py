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
    """Learns when it may, and notes what it heard."""

    def __init__(self) -> None:
        self.heard: list[PendingConversation] = []
        self.answers: list[bool | Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.at_once = self.most_at_once = 0
        self.learner = Learner(self.learn)
        self._changed = asyncio.Event()

    async def learn(self, talk: PendingConversation) -> bool:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self._changed.set()
        try:
            await self.gate.wait()
        finally:
            self.at_once -= 1
        self.heard.append(talk)
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
        await self.until(lambda: len(self.heard) >= count)
        await self.learner.flush(60)

    def said(self) -> list[list[str]]:
        return [list(talk.said) for talk in self.heard]


@pytest.fixture
async def pupil() -> Pupil:
    return Pupil()


async def test_what_is_said_before_a_pause_is_learnt_in_one_go(pupil: Pupil, talk: NewTalk) -> None:
    for text in ("one", "two", "three"):
        pupil.learner.hear(talk(text))
    pupil.learner.hear(talk("other", thread="t2"))
    await pupil.has_heard(2)

    assert sorted(pupil.said()) == [["one", "two", "three"], ["other"]]


async def test_a_talk_that_waits_holds_nothing_of_the_run_it_came_from(pupil: Pupil, talk: NewTalk) -> None:
    class Carried:
        """Something large that only a run needs."""

    carried: ContextVar[Carried] = ContextVar("carried")

    def run() -> "weakref.ref[Carried]":
        carried.set(Carried())
        pupil.learner.hear(talk("I live in Bern."))
        return weakref.ref(carried.get())

    left = copy_context().run(run)
    gc.collect()

    assert left() is None
    assert not pupil.learner.is_idle
    await pupil.learner.flush(60)


async def test_who_never_pauses_is_learnt_from_nevertheless(pupil: Pupil, talk: NewTalk) -> None:
    for number in range(20):
        pupil.learner.hear(talk(str(number), debounce_seconds=300))
    await pupil.has_heard(1)

    assert [len(said) for said in pupil.said()] == [20]


async def test_talks_of_one_user_are_learnt_from_in_turn_and_of_many_at_once(
    pupil: Pupil, talk: NewTalk
) -> None:
    for number in range(6):
        pupil.learner.hear(talk("a", thread=f"t{number}"))
    await pupil.has_heard(6)
    alone = pupil.most_at_once
    pupil.gate.clear()
    for number in range(9):
        pupil.learner.hear(talk("b", scope=Scope(f"u{number}")))
    await pupil.until(lambda: pupil.at_once == MAX_AT_ONCE)
    pupil.gate.set()
    await pupil.has_heard(15)

    assert alone == 1
    assert pupil.most_at_once == MAX_AT_ONCE


async def test_a_talk_that_failed_is_heard_again_with_what_was_said_since(
    pupil: Pupil, talk: NewTalk
) -> None:
    pupil.gate.clear()
    pupil.answers = [False]
    pupil.learner.hear(talk("first"))
    await pupil.until(lambda: pupil.at_once == 1)
    pupil.learner.hear(talk("second", debounce_seconds=300))
    pupil.gate.set()
    await pupil.until(lambda: len(pupil.heard) == 1)
    await asyncio.wait_for(pupil.learner.flush(60), 60)
    await pupil.has_heard(2)

    assert pupil.said() == [["first"], ["first", "second"]]


async def test_a_talk_that_fails_again_and_again_is_given_up(
    pupil: Pupil, talk: NewTalk, caplog: pytest.LogCaptureFixture
) -> None:
    pupil.answers = [False] * 10

    pupil.learner.hear(talk("first"))
    await pupil.has_heard(3)

    assert pupil.learner.is_idle
    assert "memory was not updated from thread t1" in caplog.text


async def test_a_model_that_fails_is_not_asked_again_with_every_turn_of_a_long_talk(
    pupil: Pupil, talk: NewTalk
) -> None:
    pupil.answers = [False]

    for number in range(20):
        pupil.learner.hear(talk(str(number), debounce_seconds=300))
    await pupil.until(lambda: len(pupil.heard) == 1)
    for number in range(5):
        pupil.learner.hear(talk(str(number), debounce_seconds=300))
        await asyncio.sleep(0.01)  # time enough to be asked, if it were
    await pupil.learner.flush(60)

    assert [len(said) for said in pupil.said()] == [20, 25]


async def test_whatever_goes_wrong_is_logged_and_nothing_else(
    pupil: Pupil, talk: NewTalk, caplog: pytest.LogCaptureFixture
) -> None:
    pupil.answers = [ValueError("boom")]

    pupil.learner.hear(talk("first"))
    await pupil.has_heard(1)

    assert "boom" in caplog.text
    pupil.learner.hear(talk("next"))
    await pupil.has_heard(2)
    assert pupil.said()[-1] == ["next"]


async def test_a_queue_that_is_full_loses_the_oldest(
    pupil: Pupil, talk: NewTalk, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(4):
        pupil.learner.hear(talk(str(number), thread=f"t{number}", queue_max_depth=2, debounce_seconds=300))
    await pupil.learner.flush(60)

    assert pupil.said() == [["2"], ["3"]]
    assert "queue_max_depth" in caplog.text


async def test_what_is_to_be_forgotten_is_not_learnt(pupil: Pupil, talk: NewTalk) -> None:
    pupil.gate.clear()
    pupil.learner.hear(talk("a", thread="t1"))
    await pupil.until(lambda: pupil.at_once == 1)
    pupil.learner.hear(talk("b", thread="t2", debounce_seconds=300))
    pupil.learner.hear(talk("c", thread="t3", scope=Scope("ben"), debounce_seconds=300))
    pupil.learner.forget(scope=ANN)
    pupil.learner.forget(thread_id="t3")
    pupil.gate.set()
    await pupil.learner.flush(60)

    assert pupil.heard == []
    assert pupil.learner.is_idle


async def test_the_end_waits_for_what_is_being_learnt_but_not_for_long(
    pupil: Pupil, talk: NewTalk, caplog: pytest.LogCaptureFixture
) -> None:
    pupil.learner.hear(talk("quick", debounce_seconds=300))
    await pupil.learner.flush(60)
    pupil.gate.clear()
    pupil.learner.hear(talk("slow", debounce_seconds=300))
    with caplog.at_level(logging.WARNING):
        await pupil.learner.aclose(0.01)
    pupil.learner.hear(talk("late"))

    assert pupil.said() == [["quick"]]
    assert "1 conversations were not looked through for facts before the end" in caplog.text
    assert pupil.learner.is_idle


async def test_who_must_end_at_once_gives_up_what_waits_and_what_is_being_learnt(
    pupil: Pupil, talk: NewTalk, caplog: pytest.LogCaptureFixture
) -> None:
    pupil.gate.clear()
    pupil.learner.hear(talk("begun"))
    await pupil.until(lambda: pupil.at_once == 1)
    pupil.learner.hear(talk("waiting", thread="t2", debounce_seconds=300))
    closing = asyncio.create_task(pupil.learner.aclose(300))
    pupil.learner.hurry()
    await asyncio.wait_for(closing, 60)

    assert (pupil.heard, pupil.learner.is_idle) == ([], True)
    assert "2 conversations were not looked through" in caplog.text


async def test_talks_of_an_agent_and_of_its_user_are_apart(pupil: Pupil, talk: NewTalk) -> None:
    pupil.learner.hear(talk("to the lead"))
    pupil.learner.hear(replace(talk("to the cook"), scope=replace(ANN, agent_name="cook")))
    await pupil.has_heard(2)

    assert sorted(pupil.said()) == [["to the cook"], ["to the lead"]]
