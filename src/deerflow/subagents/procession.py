"""Start many tasks one after the other, each in an iteration of the event loop of its own."""

import asyncio


class Procession:
    """Tasks that start at nearly the same time, in order of arrival.

    Tasks that start concurrently interleave the steps of their start, so that all requests are sent at the
    end. One after the other, the first model call is in flight while the last task is still being prepared.
    """

    def __init__(self) -> None:
        self._last: asyncio.Future[None] | None = None

    @property
    def is_calm(self) -> bool:
        """Whether no task is starting; tasks of a closed event loop do not count."""
        last = self._last
        return last is None or last.done() or last.get_loop() is not asyncio.get_running_loop()

    async def turn(
        self, *, after: "Procession | None" = None, unless: "asyncio.Future[None] | None" = None
    ) -> None:
        """Wait for the tasks that arrived before.

        Args:
            after: Another sequence, whose tasks go first.
            unless: Stop waiting once this future is done.
        """
        loop = asyncio.get_running_loop()
        before, mine = self._last, loop.create_future()
        self._last = mine
        try:
            await _passed(before, unless)
            while after is not None and not after.is_calm and not (unless and unless.done()):
                await _passed(after._last, unless)
        finally:
            # The next task continues when this one has reached its first await.
            loop.call_soon(_let_by, mine)


async def _passed(turn: "asyncio.Future[None] | None", unless: "asyncio.Future[None] | None") -> None:
    if turn is None or turn.done() or turn.get_loop() is not asyncio.get_running_loop():
        return
    if unless is None:
        await turn  # cancelling this wait cancels the future: other waiters treat that as its end
    else:
        await asyncio.wait([turn, unless], return_when=asyncio.FIRST_COMPLETED)


def _let_by(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)
