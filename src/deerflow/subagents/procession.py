"""Lets many go through one after the other, each with a turn of the event loop to itself."""

import asyncio


class Procession:
    """Those who begin at nearly the same time, in the order in which they came.

    Many that begin at once would each do a step of their start in turn, and all requests would leave at the
    end; one after the other, the first model thinks while the last task still gets ready.
    """

    def __init__(self) -> None:
        self._last: asyncio.Future[None] | None = None

    @property
    def is_calm(self) -> bool:
        """Nobody is on the way; those of a loop that has ended never come."""
        last = self._last
        return last is None or last.done() or last.get_loop() is not asyncio.get_running_loop()

    async def turn(
        self, *, after: "Procession | None" = None, unless: "asyncio.Future[None] | None" = None
    ) -> None:
        """Wait for those who came before.

        Args:
            after: Wait for all of another procession too.
            unless: Wait no longer once this is done.
        """
        loop = asyncio.get_running_loop()
        before, mine = self._last, loop.create_future()
        self._last = mine
        try:
            await _passed(before, unless)
            while after is not None and not after.is_calm and not (unless and unless.done()):
                await _passed(after._last, unless)
        finally:
            # The one behind goes on when this one has come to its first pause.
            loop.call_soon(_let_by, mine)


async def _passed(turn: "asyncio.Future[None] | None", unless: "asyncio.Future[None] | None") -> None:
    if turn is None or turn.done() or turn.get_loop() is not asyncio.get_running_loop():
        return
    if unless is None:
        await turn  # who is cancelled here cancels it: those who wait for it too take that for its end
    else:
        await asyncio.wait([turn, unless], return_when=asyncio.FIRST_COMPLETED)


def _let_by(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)
