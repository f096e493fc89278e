"""Signals wake waiting coroutines as soon as something in the database has changed.

A signal carries only its topic. Signals may be lost or spurious: after a wake-up or a timeout the waiter
reads the database.
"""

import asyncio
import hashlib
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

QUEUE = "queue"
"""Topic: a run without an owner is waiting."""
_MAX_NAME = 200


def run_topic(run_id: str) -> str:
    """Return the topic of a run: it has new events or has ended."""
    return _topic("run", run_id)


def owner_topic(owner: str) -> str:
    """Return the topic of an owner: cancellation of one of its runs was requested."""
    return _topic("owner", owner)


def thread_topic(thread_id: str) -> str:
    """Return the topic of a thread: a run was admitted in it."""
    return _topic("thread", thread_id)


def _topic(kind: str, name: str) -> str:
    # A PostgreSQL notification holds at most 8000 bytes; longer names are hashed.
    if len(name) > _MAX_NAME or not name.isprintable():
        name = hashlib.blake2b(name.encode(errors="replace"), digest_size=16).hexdigest()
    return f"{kind}:{name}"


class SignalWatch:
    """Waits for one topic; a signal since the last wait counts."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    async def wait(self, timeout: float) -> bool:
        """Return True when the topic was signalled since the last wait, False on timeout."""
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


class Signals:
    """The watches of this process by topic; thread-safe."""

    is_connected = False
    """Signals of other processes arrive, so waiters may poll rarely."""

    def __init__(self) -> None:
        self._watches: dict[str, set[SignalWatch]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def watch(self, topic: str) -> Iterator[SignalWatch]:
        """SignalWatch a topic from now on: no signal before the first `wait` is lost."""
        watch = SignalWatch()
        with self._lock:
            self._watches.setdefault(topic, set()).add(watch)
        try:
            yield watch
        finally:
            with self._lock:
                others = self._watches[topic]
                others.discard(watch)
                if not others:
                    del self._watches[topic]

    def notify(self, topics: Iterable[str]) -> None:
        """Wake all watches of these topics."""
        if not self._watches:
            return
        with self._lock:
            self._wake([watch for topic in topics for watch in self._watches.get(topic, ())])

    def notify_all(self) -> None:
        """Wake all watches: signals may have been lost."""
        with self._lock:
            self._wake([watch for watches in self._watches.values() for watch in watches])

    @staticmethod
    def _wake(watches: Iterable[SignalWatch]) -> None:
        loops: dict[asyncio.AbstractEventLoop, list[asyncio.Event]] = {}
        for watch in watches:
            loops.setdefault(watch._loop, []).append(watch._event)
        for loop, events in loops.items():
            with suppress(RuntimeError):  # the loop is closed: nothing waits on it
                loop.call_soon_threadsafe(_set_all, events)


def _set_all(events: Iterable[asyncio.Event]) -> None:
    for event in events:
        event.set()
