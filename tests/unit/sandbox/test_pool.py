import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from deerflow.config import SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.sandbox import Sandbox, create_sandbox_provider
from deerflow.sandbox.landlock import NEEDED_ABI, landlock_abi
from deerflow.sandbox.pool import CommandSlots


class Commands:
    """Commands that note when they start, and end when they are told."""

    def __init__(self, slots: CommandSlots) -> None:
        self.slots = slots
        self.started: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}

    async def run(self, thread: str, name: str) -> None:
        self.ends[name] = asyncio.Event()
        async with self.slots.hold(thread):
            self.started.append(name)
            await self.ends[name].wait()

    def start(self, *names: str) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self.run(name[0], name)) for name in names]

    async def end(self, *names: str) -> None:
        for name in names:
            self.ends[name].set()
        await settled()


async def settled() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def test_threads_get_their_turns_however_many_commands_one_has_in_line() -> None:
    commands = Commands(CommandSlots(limit=2, per_thread=2))

    tasks = commands.start("a1", "a2", "a3", "a4", "b1", "c1")
    await settled()
    assert commands.started == ["a1", "a2"]
    await commands.end("a1", "a2")
    assert commands.started == ["a1", "a2", "a3", "b1"]
    await commands.end("a3")

    assert commands.started == ["a1", "a2", "a3", "b1", "c1"]
    await commands.end("b1", "c1", "a4")
    await asyncio.gather(*tasks)


async def test_a_thread_has_no_more_than_its_own_number_while_others_go_on() -> None:
    commands = Commands(CommandSlots(limit=9, per_thread=1))

    tasks = commands.start("a1", "a2", "b1")
    await settled()

    assert commands.started == ["a1", "b1"]
    await commands.end("a1", "a2", "b1")
    await asyncio.gather(*tasks)
    assert commands.started == ["a1", "b1", "a2"]


async def test_a_cancelled_waiter_leaves_no_slot_taken() -> None:
    commands = Commands(CommandSlots(limit=1, per_thread=1))
    first, waiting, called, last = commands.start("a1", "b1", "c1", "d1")
    await settled()

    waiting.cancel()
    await settled()
    commands.ends["a1"].set()
    await first  # its slot has just been given to the next
    called.cancel()
    await settled()

    assert commands.started == ["a1", "d1"]
    await commands.end("d1")
    await last
    for task in (waiting, called):
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_commands_start_one_a_turn_of_the_loop() -> None:
    slots = CommandSlots(limit=9, per_thread=9)
    turns: list[int] = []
    turn = 0

    async def command() -> None:
        async with slots.hold("a"):
            turns.append(turn)

    tasks = [asyncio.create_task(command()) for _ in range(9)]
    while not all(task.done() for task in tasks):
        turn += 1
        await asyncio.sleep(0)

    assert len(set(turns)) == 9


FIRST_USES: dict[str, Callable[[Sandbox], Awaitable[object]]] = {
    "a file": lambda sandbox: sandbox.write_file("a.txt", "x"),
    "a listing": lambda sandbox: sandbox.list_dir("/mnt/user-data"),
    "a command": lambda sandbox: sandbox.execute_command("pwd"),
    "a snapshot": lambda sandbox: asyncio.to_thread(sandbox.prepare),
}


NEEDS_LANDLOCK = pytest.mark.skipif(landlock_abi() < NEEDED_ABI, reason="this kernel has no such Landlock")


@pytest.mark.parametrize("tier", ["local", "isolated", pytest.param("landlock", marks=NEEDS_LANDLOCK)])
@pytest.mark.parametrize("first_use", FIRST_USES)
async def test_a_threads_folders_are_created_at_the_first_use_of_its_sandbox(
    tier: str, first_use: str, reachable: Path
) -> None:
    provider = create_sandbox_provider(SandboxSettings(use=tier, allow_host_bash=True))
    folders = ThreadFolders("t1", reachable / "users" / "u" / "threads" / "t1")

    async with provider.acquire(folders) as sandbox:
        existed = folders.root.exists()
        await FIRST_USES[first_use](sandbox)
    async with provider.acquire(folders) as again:
        pass
    await provider.aclose()

    assert not existed
    assert all(folder.is_dir() for folder in (folders.workspace, folders.uploads, folders.outputs))
    assert folders.root.stat().st_mode & 0o007 == 0
    assert again is sandbox
