"""Times out interrupts without an answer: a new run resumes them with a rejection.

An interrupt holds its own expiry and is in the thread's checkpoint. So every server can find the expired
ones, also after a restart; the idempotency key of the answering run ensures that only one run is started,
however many servers find it.
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
from deerflow.storage import RunStore, ThreadQuery, ThreadStore

logger = logging.getLogger(__name__)

StartRun = Callable[[RunRequest], Awaitable[RunRecord]]
Clock = Callable[[], datetime]

_PAGE = 100
_LEAST_PAUSE, _MOST_PAUSE = 0.25, 15.0
_MOST_LOOKS = 20_000
"""How many threads are cached; beyond that, the cache is cleared and all are read again."""
_AGAIN_SECONDS = 60
"""The delay before a failed answer is tried again."""


@dataclass(frozen=True, slots=True)
class _Look:
    """The cached expiry of a thread's interrupts."""

    updated_at: datetime
    until: datetime | None
    """When its first interrupt expires; None when none does."""


class QuestionTimeouts:
    """Times out the interrupts of all threads."""

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
        """Create the timeouts of one process.

        Args:
            start: Starts the run that sends the rejection.
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
        """Start polling, until `aclose`."""
        self._rounds = asyncio.create_task(self._make_rounds())

    async def aclose(self) -> None:
        """Stop polling."""
        if self._rounds is not None:
            self._rounds.cancel()
            await asyncio.gather(self._rounds, return_exceptions=True)

    async def make_round(self) -> int:
        """Reject every expired interrupt; return how many runs were started."""
        await self._look_at_what_changed()
        due = [thread for thread, look in self._looks.items() if look.until and look.until < self._clock()]
        return sum([await self._answer(thread_id) for thread_id in due])

    async def _look_at_what_changed(self) -> None:
        """Read the changed interrupted threads, latest change first; stops at a page without changes."""
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
        """Return the expiry of each interrupt of a thread, by its id."""
        head = await self._checkpoints.aget_tuple({"configurable": {"thread_id": thread_id}})
        # Most threads of this status were only cancelled: seeing that does not require their messages.
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
            if request is None:  # answered, or no run to copy: skip it until it changes
                self._looks[thread_id] = replace(look, until=None)
                return False
            run = await self._start(request)
        except ConflictError:
            return False  # it was answered, or the thread is busy again
        except DeerFlowError as error:
            logger.warning("thread %s: its question could not be timed out: %s", thread_id, error)
            later = self._clock() + timedelta(seconds=_AGAIN_SECONDS)
            self._looks[thread_id] = replace(look, until=later)
            return False
        logger.info("thread %s: nobody answered in time, run %s goes on with a rejection", thread_id, run.id)
        return True

    async def _rejection(self, thread_id: str) -> RunRequest | None:
        """Return the request that rejects the expired interrupts, with the options of the run that asked."""
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
        """Return the polling interval: a short timeout needs a short interval."""
        return min(max(self._settings().ask_timeout_seconds / 10, _LEAST_PAUSE), _MOST_PAUSE)


def expiry(question: Any) -> datetime | None:
    """Return when an interrupt expires; None if it never does."""
    text = question.get("expires_at") if isinstance(question, Mapping) else None
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)


def key_of(thread_id: str, questions: Sequence[Interrupt]) -> str:
    """Return the idempotency key of exactly these interrupts: the next interrupt may have the same id."""
    parts = sorted(f"{each.id} {each.value.get('hash')} {each.value['expires_at']}" for each in questions)
    return f"ask-timeout-{hashlib.sha256(' '.join([thread_id, *parts]).encode()).hexdigest()}"
