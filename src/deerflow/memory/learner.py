"""Learns from talks once they pause, beside the runs: no run waits for it or fails with it."""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from deerflow.errors import DeerFlowError
from deerflow.memory.base import Scope
from deerflow.memory.pending_conversation import MAX_EXCHANGES, PendingConversation

logger = logging.getLogger(__name__)

Learn = Callable[[PendingConversation], Awaitable[bool]]
"""Learns from a talk; False when it could not, and it may be tried again."""

MAX_AT_ONCE = 4
MAX_FAILURES = 2
"""How often a talk that could not be learnt from is put back."""
MAX_UNTOLD = 100
"""Of so many talks that are dropped the log tells of one."""
_Key = tuple[Scope, str]


@dataclass(frozen=True, slots=True)
class _Waiting:
    talk: PendingConversation
    timer: asyncio.TimerHandle


class Learner:
    """Holds talks until nothing was said in them for a while, then has them learnt from."""

    def __init__(self, learn: Learn) -> None:
        self._learn = learn
        self._waiting: dict[_Key, _Waiting] = {}
        self._tasks: dict[asyncio.Task[None], _Key] = {}
        self._places = asyncio.Semaphore(MAX_AT_ONCE)
        self._turns: dict[Scope, asyncio.Lock] = {}
        self._is_closed = False
        self._dropped = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be learnt from and nothing is being learnt."""
        return not self._waiting and not self._tasks

    def hear(self, talk: PendingConversation) -> None:
        """Take what was just said; it is learnt from when the thread has been quiet for a while."""
        key, most = (talk.scope, talk.thread_id), talk.settings.queue_max_depth
        if self._is_closed:
            return
        before = self._waiting.pop(key, None)
        if before is not None:
            before.timer.cancel()
            exchanges = (*before.talk.exchanges, *talk.exchanges)
            failures = max(before.talk.failures, talk.failures)
            talk = replace(talk, exchanges=exchanges, failures=failures)
        elif most and len(self._waiting) >= most:
            self._drop_oldest(most)
        # One who never pauses is learnt from nevertheless; a model that failed is not asked again every turn.
        is_due = len(talk.exchanges) >= MAX_EXCHANGES * (1 + talk.failures)
        delay = 0.0 if is_due else talk.settings.debounce_seconds
        # In a context of its own: that of the run would be held until then, with all that the run carried.
        timer = asyncio.get_running_loop().call_later(delay, self._begin, key, context=contextvars.Context())
        self._waiting[key] = _Waiting(talk, timer)

    def forget(self, *, scope: Scope | None = None, thread_id: str | None = None) -> None:
        """Learn nothing more from a thread, or for a scope."""
        for key in [key for key in self._waiting if scope == key[0] or thread_id == key[1]]:
            self._waiting.pop(key).timer.cancel()
        for task, key in self._tasks.items():
            if scope == key[0] or thread_id == key[1]:
                task.cancel()

    async def flush(self, timeout_seconds: float) -> int:
        """Learn from all that waits, now; return how many talks are not learnt from when the time is up."""
        for key in list(self._waiting):
            self._begin(key)
        if not self._tasks:
            return 0
        _, late = await asyncio.wait(self._tasks, timeout=timeout_seconds)
        return len(late)

    async def aclose(self, timeout_seconds: float) -> None:
        """Learn from all that waits as long as there is time, and end."""
        self._is_closed = True
        late = await self.flush(timeout_seconds)
        if late:
            logger.warning("memory: %d conversations were not looked through for facts before the end", late)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def hurry(self) -> None:
        """Give up all that waits or is being learnt; for a process that has to end at once."""
        self._is_closed = True
        lost = len(self._waiting) + len(self._tasks)
        for waiting in self._waiting.values():
            waiting.timer.cancel()
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()
        if lost:
            logger.warning("memory: %d conversations were not looked through for facts before the end", lost)

    def _drop_oldest(self, most: int) -> None:
        oldest = next(iter(self._waiting))
        self._waiting.pop(oldest).timer.cancel()
        self._dropped += 1
        if self._dropped % MAX_UNTOLD == 1:
            logger.warning(
                "memory: more than %d conversations wait (memory.backend_config.queue_max_depth); "
                "dropped so far: %d",
                most,
                self._dropped,
            )

    def _begin(self, key: _Key) -> None:
        waiting = self._waiting.pop(key)
        waiting.timer.cancel()
        task = asyncio.create_task(self._work(waiting.talk))
        self._tasks[task] = key
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        key = self._tasks.pop(task)
        if all(scope != key[0] for scope, _ in self._tasks.values()):
            self._turns.pop(key[0], None)

    async def _work(self, talk: PendingConversation) -> None:
        """Learn from one talk; those of one scope in turn, so that each knows what the last one taught."""
        turn = self._turns.setdefault(talk.scope, asyncio.Lock())
        async with turn, self._places:
            try:
                is_done = await self._learn(talk)
            except DeerFlowError as error:
                logger.warning("memory was not updated from thread %s: %s", talk.thread_id, error)
                return
            except Exception:  # the root of its task: whatever went wrong, nobody's run has to do with it
                logger.exception("memory was not updated from thread %s", talk.thread_id)
                return
        if not is_done:
            self._try_again(talk)

    def _try_again(self, talk: PendingConversation) -> None:
        if talk.failures >= MAX_FAILURES or self._is_closed:
            logger.warning("memory was not updated from thread %s: the model gave no answer", talk.thread_id)
            return
        newer = self._waiting.pop((talk.scope, talk.thread_id), None)
        self.hear(replace(talk, failures=talk.failures + 1))
        if newer is not None:  # said meanwhile: behind it
            newer.timer.cancel()
            self.hear(replace(newer.talk, failures=talk.failures + 1))
