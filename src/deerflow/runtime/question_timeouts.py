"""Ends the waiting of questions that nobody answered: the run goes on with a rejection.

A question says itself until when it waits, and it is in the thread's checkpoint. So every server can look for
those whose time is over, also after a restart; the key of the answering run makes sure that it is one run,
however many servers look.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import INTERRUPT
from langgraph.types import Interrupt

from deerflow.config import GuardrailsSettings
from deerflow.domain import DisconnectMode, MultitaskStrategy, RunRecord, RunRequest, Thread, ThreadStatus
from deerflow.errors import ConflictError, DeerFlowError
from deerflow.runtime.states import ThreadStates
from deerflow.storage.base import RunStore, ThreadQuery, ThreadStore

logger = logging.getLogger(__name__)

StartRun = Callable[[RunRequest], Awaitable[RunRecord]]
Clock = Callable[[], datetime]

_PAGE = 100
_LEAST_PAUSE, _MOST_PAUSE = 0.25, 15.0
_MOST_LOOKS = 20_000
"""How many threads are remembered; beyond, all are looked at anew."""
_AGAIN_SECONDS = 60
"""After how long an answer that could not be given is tried again."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What a thread looked like when it was last read."""

    updated_at: datetime
    until: datetime | None
    """When its first question runs out; None when nothing in it does."""


class QuestionTimeouts:
    """Looks after the questions of all threads."""

    def __init__(
        self,
        *,
        threads: ThreadStore,
        runs: RunStore,
        states: ThreadStates,
        checkpoints: BaseCheckpointSaver[Any],
        start: StartRun,
        settings: Callable[[], GuardrailsSettings],
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        """Make the tender of one process.

        Args:
            start: Starts the run that gives the answer.
        """
        self._threads = threads
        self._runs = runs
        self._states = states
        self._checkpoints = checkpoints
        self._start = start
        self._settings = settings
        self._clock = clock
        self._looks: dict[str, _Look] = {}
        self._rounds: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look now, and again as long as this process lives."""
        self._rounds = asyncio.create_task(self._make_rounds())

    async def aclose(self) -> None:
        """Stop looking."""
        if self._rounds is not None:
            self._rounds.cancel()
            await asyncio.gather(self._rounds, return_exceptions=True)

    async def make_round(self) -> int:
        """Answer every question whose time is over; return how many runs went on with that."""
        await self._look_at_what_changed()
        due = [thread for thread, look in self._looks.items() if look.until and look.until < self._clock()]
        return sum([await self._answer(thread_id) for thread_id in due])

    async def _look_at_what_changed(self) -> None:
        """Read the threads that wait; those that changed last come first, so the known rest is left alone."""
        if len(self._looks) > _MOST_LOOKS:
            self._looks.clear()
        is_first, offset = not self._looks, 0
        while True:
            query = ThreadQuery(None, status=ThreadStatus.INTERRUPTED, limit=_PAGE, offset=offset)
            found = await self._threads.search(query)
            new = [thread for thread in found if self._has_changed(thread)]
            for thread in new:
                questions = await self._waiting(thread.id)
                until = min(questions.values(), default=None)
                self._looks[thread.id] = _Look(thread.updated_at, until)
            if len(found) < _PAGE or (not new and not is_first):
                return
            offset += _PAGE

    def _has_changed(self, thread: Thread) -> bool:
        look = self._looks.get(thread.id)
        return look is None or look.updated_at != thread.updated_at

    async def _waiting(self, thread_id: str) -> dict[str, datetime]:
        """Return until when each question of a thread waits, by its id."""
        head = await self._checkpoints.aget_tuple({"configurable": {"thread_id": thread_id}})
        # Most threads of this status were merely stopped: to see that, their messages need not be read.
        writes = (head.pending_writes if head is not None else None) or ()
        if not any(channel == INTERRUPT for _, channel, _ in writes):
            return {}
        asked = await self._asked(thread_id)
        return {each.id: until for each in asked if (until := expiry(each.value)) is not None}

    async def _asked(self, thread_id: str) -> list[Interrupt]:
        return [each for asked in (await self._states.questions(thread_id)).values() for each in asked]

    async def _answer(self, thread_id: str) -> bool:
        look = self._looks.pop(thread_id)
        try:
            request = await self._rejection(thread_id)
            if request is None:  # answered, or without a run to go on like: not looked at until it changes
                self._looks[thread_id] = replace(look, until=None)
                return False
            run = await self._start(request)
        except ConflictError:
            return False  # somebody answered, or the thread is at work again
        except DeerFlowError as error:
            logger.warning("thread %s: its question could not be timed out: %s", thread_id, error)
            later = self._clock() + timedelta(seconds=_AGAIN_SECONDS)
            self._looks[thread_id] = replace(look, until=later)
            return False
        logger.info("thread %s: nobody answered in time, run %s goes on with a rejection", thread_id, run.id)
        return True

    async def _rejection(self, thread_id: str) -> RunRequest | None:
        """Return the request that rejects what ran out, in the manner of the run that asked."""
        late = [
            each
            for each in await self._asked(thread_id)
            if (until := expiry(each.value)) and until < self._clock()
        ]
        last = await self._runs.of_thread(thread_id, limit=1)
        if not late or not last:
            return None
        seconds = self._settings().ask_timeout_seconds
        words = f"nobody answered within {seconds:g} seconds (guardrails.ask_timeout_seconds)"
        rejected = {"decisions": [{"type": "reject", "message": words}]}
        return replace(
            last[0].request,
            input=None,
            command={"resume": {each.id: rejected for each in late}},
            checkpoint_id=None,
            after_seconds=None,
            on_disconnect=DisconnectMode.CONTINUE,
            multitask_strategy=MultitaskStrategy.REJECT,
            idempotency_key=key_of(thread_id, late),
        )

    async def _make_rounds(self) -> None:
        while True:
            try:
                await self.make_round()
            except DeerFlowError as error:
                logger.warning("questions could not be looked after, trying again: %s", error)
            await asyncio.sleep(self._pause())

    def _pause(self) -> float:
        """Return how long to wait: a short time-out wants to be looked at more often."""
        return min(max(self._settings().ask_timeout_seconds / 10, _LEAST_PAUSE), _MOST_PAUSE)


def expiry(question: Any) -> datetime | None:
    """Return until when a question waits for an answer; None for one that waits for ever."""
    text = question.get("expires_at") if isinstance(question, Mapping) else None
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)


def key_of(thread_id: str, questions: Sequence[Interrupt]) -> str:
    """Return what stands for exactly these questions: an id alone may come again for the next one."""
    parts = sorted(f"{each.id} {each.value.get('hash')} {each.value['expires_at']}" for each in questions)
    return f"ask-timeout-{hashlib.sha256(' '.join([thread_id, *parts]).encode()).hexdigest()}"
