"""Lets commands through once the sandbox has passed its test, and tests again after a failure."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from deerflow.errors import SandboxUnavailableError
from deerflow.sandbox.diagnosis import diagnose
from deerflow.sandbox.selftest import Probe, SelfTest

RETRY_SECONDS = 15.0
"""How long a failed test is believed: an operator's fix then takes effect without a restart."""


class SelfTestCache:
    """Remembers the last self-test; one at a time is run."""

    __test__ = False  # the name is ours, not pytest's

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
        """The last test; None before the first."""
        return self._last

    @property
    def refusal(self) -> str | None:
        """The last test's refusal; None while nothing is known against the sandbox."""
        return self._last.refusal if self._last else None

    async def test(self) -> SelfTest:
        """Test now and remember what came out."""
        async with self._lock:
            return await self._test()

    async def require(self) -> None:
        """Return when the sandbox is known to hold; raise `SandboxUnavailableError` when it does not."""
        if self._last is None or not self._last.ok:
            async with self._lock:
                if self._last is None or self._is_stale():
                    await self._test()
        if self.refusal:
            raise SandboxUnavailableError(self.refusal)

    async def doubt(self) -> str | None:
        """Test again after a command's sandbox did not start; return the refusal, None when others do."""
        tests = self._tests
        async with self._lock:
            if self._tests == tests:  # else another one has just done it
                await self._test()
                self._tested_at -= RETRY_SECONDS  # it held a moment ago: the next command tries at once
        return self.refusal

    def look_again(self) -> None:
        """Test beside whatever goes on, where the last failure is old: nobody gives a command that is off."""
        if self._is_stale() and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self.test())

    async def aclose(self) -> None:
        """End a test that is on its way."""
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
