"""A program is followed to its end, and whoever follows it can be stopped at every moment."""

import asyncio
import os
import signal
import sys

import pytest

from deerflow.sandbox.process import Launch, OutputBuffer, Watch, run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="programs are started as POSIX has it")


def launch(*argv: str, watch: Watch) -> Launch:
    return Launch(argv=argv, env={}, kill=lambda pid: os.killpg(pid, signal.SIGKILL), watch=watch)


async def test_a_caller_cancelled_while_the_watch_ends_is_stopped() -> None:
    is_ending, may_end = asyncio.Event(), asyncio.Event()

    async def watch(pid: int) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            is_ending.set()
            await may_end.wait()
        return "never"

    async def follow() -> None:
        await run(launch("/bin/true", watch=watch), OutputBuffer(max_chars=0), timeout=600)

    following = asyncio.create_task(follow())
    await is_ending.wait()
    following.cancel()
    may_end.set()

    with pytest.raises(asyncio.CancelledError):
        await following


async def test_an_error_of_the_watch_is_raised() -> None:
    async def watch(pid: int) -> str:
        raise OSError("no descriptors left")

    with pytest.raises(OSError, match="no descriptors left"):
        await run(launch("/bin/sleep", "600", watch=watch), OutputBuffer(max_chars=0), timeout=600)


async def test_a_reason_of_the_watch_ends_the_program() -> None:
    async def watch(pid: int) -> str:
        return "it used too much"

    ending = await run(launch("/bin/sleep", "600", watch=watch), OutputBuffer(max_chars=0), timeout=600)

    assert (ending.stopped, ending.timed_out) == ("it used too much", False)
