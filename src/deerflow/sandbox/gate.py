"""Allows commands only after the sandbox has passed its self-test, and repeats a failed test."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from deerflow.errors import SandboxUnavailableError
from deerflow.sandbox.diagnosis import diagnose
from deerflow.sandbox.selftest import Probe, SelfTest

RETRY_SECONDS = 15.0
"""How long a failed result stays valid: afterwards an operator's fix takes effect without a restart."""


class SelfTestCache:
    """Caches the last self-test; runs at most one at a time."""

    __test__ = False  # keep pytest from collecting this class

    def __init__(
        self, probe: Callable[[], Awaitable[SelfTest]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._probe = probe
        self._clock = clock
        self._lock = asyncio.Lock()
        self._last: SelfTest | None = None
        self._tested_at = 0.0
        self._tests = 0
        self._looking: asyncio.Task[SelfTest] | None = None

    @property
    def last(self) -> SelfTest | None:
        """The last result; None before the first test."""
        return self._last

    @property
    def refusal(self) -> str | None:
        """The last result's refusal; None when it passed or nothing was tested yet."""
        return self._last.refusal if self._last else None

    async def test(self) -> SelfTest:
        """Run the test now and cache the result."""
        async with self._lock:
            return await self._test()

    async def require(self) -> None:
        """Return once the sandbox has passed; raise `SandboxUnavailableError` when it has failed."""
        if self._last is None or not self._last.ok:
            async with self._lock:
                if self._last is None or self._is_stale():
                    await self._test()
        if self.refusal:
            raise SandboxUnavailableError(self.refusal)

    async def doubt(self) -> str | None:
        """Test again after a command's sandbox did not start; return the refusal, None when it passes."""
        tests = self._tests
        async with self._lock:
            if self._tests == tests:  # else another caller has tested meanwhile
                await self._test()
                self._tested_at -= RETRY_SECONDS  # it passed before: let the next command test again at once
        return self.refusal

    def look_again(self) -> None:
        """Test in the background when the last failure is stale: with bash off, no command triggers it."""
        if self._is_stale() and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self.test())

    async def aclose(self) -> None:
        """Cancel a background test."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    def _is_stale(self) -> bool:
        return (
            self._last is not None and not self._last.ok and self._clock() - self._tested_at >= RETRY_SECONDS
        )

    async def _test(self) -> SelfTest:
        try:
            self._last = await self._probe()
        except SandboxUnavailableError as error:
            text = str(error)
            found = diagnose(text)
            self._last = SelfTest(False, (Probe("start", False, text[:300]),), found.reason, found.fix)
        self._tested_at = self._clock()
        self._tests += 1
        return self._last
