"""Learn from conversations once they pause, in the background: no run waits for it or fails with it."""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from deerflow.errors import DeerFlowError
from deerflow.memory.base import MAX_TURNS, PendingConversation, Scope

logger = logging.getLogger(__name__)

Learn = Callable[[PendingConversation], Awaitable[bool]]
"""Learns from a conversation; returns False when it failed and may be retried."""

MAX_AT_ONCE = 4
MAX_FAILURES = 2
"""How often a failed conversation is retried."""
DROPS_PER_WARNING = 100
"""One in this many dropped conversations is logged."""
_Key = tuple[Scope, str]


@dataclass(frozen=True, slots=True)
class _Waiting:
    conversation: PendingConversation
    timer: asyncio.TimerHandle


class Learner:
    """Debounces conversations: learns from one when its thread has been quiet for a while."""

    def __init__(self, learn: Learn) -> None:
        self._learn = learn
        self._waiting: dict[_Key, _Waiting] = {}
        self._tasks: dict[asyncio.Task[None], _Key] = {}
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)
        self._locks: dict[Scope, asyncio.Lock] = {}
        self._is_closed = False
        self._dropped = 0

    @property
    def is_idle(self) -> bool:
        """Whether no conversation is waiting or being processed."""
        return not self._waiting and not self._tasks

    def enqueue(self, conversation: PendingConversation) -> None:
        """Queue new turns of a thread; they are processed when the thread has been quiet for a while."""
        key, most = (conversation.scope, conversation.thread_id), conversation.settings.queue_max_depth
        if self._is_closed:
            return
        before = self._waiting.pop(key, None)
        if before is not None:
            before.timer.cancel()
            turns = (*before.conversation.turns, *conversation.turns)
            failures = max(before.conversation.failures, conversation.failures)
            conversation = replace(conversation, turns=turns, failures=failures)
        elif most and len(self._waiting) >= most:
            self._drop_oldest(most)
        # A thread that never pauses is processed anyway; a model that failed is not called again every turn.
        is_due = len(conversation.turns) >= MAX_TURNS * (1 + conversation.failures)
        delay = 0.0 if is_due else conversation.settings.debounce_seconds
        # An empty context: the run's context would be kept alive until then, with everything in it.
        timer = asyncio.get_running_loop().call_later(delay, self._begin, key, context=contextvars.Context())
        self._waiting[key] = _Waiting(conversation, timer)

    def forget(self, *, scope: Scope | None = None, thread_id: str | None = None) -> None:
        """Drop and cancel all pending work of a thread or a scope."""
        for key in [key for key in self._waiting if scope == key[0] or thread_id == key[1]]:
            self._waiting.pop(key).timer.cancel()
        for task, key in self._tasks.items():
            if scope == key[0] or thread_id == key[1]:
                task.cancel()

    async def flush(self, timeout_seconds: float) -> int:
        """Process everything that waits now; return how many conversations are unfinished at the timeout."""
        for key in list(self._waiting):
            self._begin(key)
        if not self._tasks:
            return 0
        _, late = await asyncio.wait(self._tasks, timeout=timeout_seconds)
        return len(late)

    async def aclose(self, timeout_seconds: float) -> None:
        """Process everything that waits until the timeout, then stop."""
        self._is_closed = True
        late = await self.flush(timeout_seconds)
        if late:
            logger.warning("memory: %d conversations were not looked through for facts before the end", late)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def cancel_all(self) -> None:
        """Drop and cancel all pending work; for a process that has to exit at once."""
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
        if self._dropped % DROPS_PER_WARNING == 1:
            logger.warning(
                "memory: more than %d conversations wait (memory.backend_config.queue_max_depth); "
                "dropped so far: %d",
                most,
                self._dropped,
            )

    def _begin(self, key: _Key) -> None:
        waiting = self._waiting.pop(key)
        waiting.timer.cancel()
        task = asyncio.create_task(self._work(waiting.conversation))
        self._tasks[task] = key
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        key = self._tasks.pop(task)
        if all(scope != key[0] for scope, _ in self._tasks.values()):
            self._locks.pop(key[0], None)

    async def _work(self, conversation: PendingConversation) -> None:
        """Process one conversation; those of one scope run in sequence, so that each sees the last update."""
        turn = self._locks.setdefault(conversation.scope, asyncio.Lock())
        async with turn, self._slots:
            try:
                is_done = await self._learn(conversation)
            except DeerFlowError as error:
                logger.warning("memory was not updated from thread %s: %s", conversation.thread_id, error)
                return
            except Exception:  # the root of its task: no error may affect a run
                logger.exception("memory was not updated from thread %s", conversation.thread_id)
                return
        if not is_done:
            self._try_again(conversation)

    def _try_again(self, conversation: PendingConversation) -> None:
        if conversation.failures >= MAX_FAILURES or self._is_closed:
            logger.warning(
                "memory was not updated from thread %s: the model gave no answer", conversation.thread_id
            )
            return
        newer = self._waiting.pop((conversation.scope, conversation.thread_id), None)
        self.enqueue(replace(conversation, failures=conversation.failures + 1))
        if newer is not None:  # turns that arrived meanwhile go behind it
            newer.timer.cancel()
            self.enqueue(replace(newer.conversation, failures=conversation.failures + 1))
