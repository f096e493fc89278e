"""The sandbox is tried beside the work, and the trial ends with it."""

import asyncio
from typing import cast

from deerflow.app.components import SandboxCheck
from deerflow.config import SandboxSettings
from deerflow.sandbox import SandboxProvider, SelfTest


class SlowSandboxes:
    """Sandboxes whose self-test takes for ever, and a while to be given up."""

    last_test: SelfTest | None = None

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.is_tidy = False

    async def self_test(self) -> SelfTest:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # as its process is reaped
            self.is_tidy = True
        raise AssertionError


async def test_who_leaves_early_leaves_no_trial_behind() -> None:
    slow = SlowSandboxes()
    check = SandboxCheck(cast("SandboxProvider", slow), SandboxSettings())

    async with check.announcing():
        await slow.begun.wait()

    assert slow.is_tidy
    assert check.health()["ready"] is None


async def test_health_says_what_was_found_out_last() -> None:
    sandboxes = SlowSandboxes()
    check = SandboxCheck(cast("SandboxProvider", sandboxes), SandboxSettings())

    sandboxes.last_test = SelfTest(False, reason="it broke.", fix="Mend it.")
    broken = check.health()
    sandboxes.last_test = SelfTest(True)

    assert (broken["ready"], broken["problem"]) == (False, "it broke. Mend it.")
    assert (check.health()["ready"], check.health()["problem"]) == (True, None)
