"""Waits for what others do, for a moment at most."""

import asyncio
from collections.abc import Hashable


class Moments:
    """Things that are about to happen, by name, each with those who wait for it."""

    def __init__(self) -> None:
        self._coming: dict[Hashable, asyncio.Future[None]] = {}

    async def wait(self, name: Hashable, *, seconds: float) -> None:
        """Wait until it has happened, or as long as that."""
        loop = asyncio.get_running_loop()
        coming = self._coming.get(name)
        if coming is None or coming.get_loop() is not loop:
            coming = self._coming[name] = loop.create_future()
        await asyncio.wait([coming], timeout=seconds)

    def is_awaited(self, name: Hashable) -> bool:
        """Tell whether somebody waits for it, or has waited in vain."""
        return name in self._coming

    def happened(self, name: Hashable) -> None:
        """Let go whoever waits for it."""
        coming = self._coming.pop(name, None)
        if coming is not None and not coming.done():
            coming.set_result(None)
