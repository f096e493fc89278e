"""One-shot events by key, awaited with a timeout."""

import asyncio
from collections.abc import Hashable


class Moments:
    """Pending events by key, each with the future that its waiters share."""

    def __init__(self) -> None:
        self._coming: dict[Hashable, asyncio.Future[None]] = {}

    async def wait(self, name: Hashable, *, seconds: float) -> None:
        """Wait until the event is set, at most `seconds`."""
        loop = asyncio.get_running_loop()
        coming = self._coming.get(name)
        if coming is None or coming.get_loop() is not loop:
            coming = self._coming[name] = loop.create_future()
        await asyncio.wait([coming], timeout=seconds)

    def is_awaited(self, name: Hashable) -> bool:
        """Return whether a task waits for the event, or has waited until its timeout."""
        return name in self._coming

    def happened(self, name: Hashable) -> None:
        """Set the event and release its waiters."""
        coming = self._coming.pop(name, None)
        if coming is not None and not coming.done():
            coming.set_result(None)
