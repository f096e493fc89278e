"""Runs the sandbox self-test once and reports its result."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from deerflow.config import SandboxSettings
from deerflow.sandbox import SandboxProvider, SelfTest, tier_of

logger = logging.getLogger(__name__)


class SandboxCheck:
    """The self-test of the sandbox provider of one process."""

    def __init__(self, sandboxes: SandboxProvider, settings: SandboxSettings) -> None:
        self._sandboxes = sandboxes
        self._tier = tier_of(settings)
        self._found: SelfTest | None = None

    async def found(self) -> SelfTest:
        """Return whether commands can run; runs the self-test on the first call."""
        if self._found is None:
            self._found = await self._sandboxes.self_test()
        return self._found

    @asynccontextmanager
    async def announcing(self) -> AsyncIterator[None]:
        """Run the self-test concurrently with the block, and log a warning when commands cannot run."""
        trying = asyncio.create_task(self._announce())
        try:
            yield
        finally:
            trying.cancel()
            await asyncio.wait([trying])  # its process must end before the event loop does

    async def _announce(self) -> None:
        found = await self.found()
        if not found.ok:
            logger.warning("sandbox %s cannot run commands: %s", self._tier, found.reason)

    def health(self) -> dict[str, Any]:
        """Return the result so far."""
        found = self._sandboxes.last_test or self._found
        return {
            "tier": self._tier,
            "ready": None if found is None else found.ok,
            "problem": None if found is None or found.ok else f"{found.reason} {found.fix}".strip(),
        }
