"""X: what is left when the server dies, works for long, or loses its sandbox."""

import asyncio
import gc
import os
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import deerflow
from deerflow.errors import SandboxUnavailableError
from deerflow.sandbox import bubblewrap

from .conftest import AttackTarget, forty_marked, gone

VICTIM = Path(__file__).parent / "victim.py"
SOURCES = Path(deerflow.__file__).parent.parent


@asynccontextmanager
async def victim(target: AttackTarget, command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a server of its own and wait until its sandbox works."""
    users = str(target.folders.root.parent.parent)
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, str(VICTIM), target.tier, users, target.mark, command),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )
    assert server.stdout is not None
    try:
        assert await asyncio.wait_for(server.stdout.readline(), 60) == b"ready\n"
        yield server
    finally:
        if server.returncode is None:
            server.kill()
        await server.communicate()


async def test_x51_nothing_is_left_of_a_killed_server(target: AttackTarget) -> None:
    command = "for i in $(seq 40); do setsid sleep 60 >/dev/null 2>&1 & done; echo begun; sleep 60"
    seconds = []
    for _ in range(10):  # the best of ten: other jobs share this machine
        async with victim(target, command) as server:
            assert server.stdout is not None
            await asyncio.wait_for(server.stdout.readline(), 60)
            await forty_marked(target.mark)

            server.kill()
            await server.wait()

            seconds.append(await gone(target.mark))
        if seconds[-1] < 1:
            break

    assert min(seconds) < 1, seconds


def orphans() -> set[int]:
    """Return processes of sandboxes and supervisors whose parent is gone."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if parent == "1" and (words.startswith(b"./bwrap\0") or b"sandbox/supervisor.py" in words):
            found.add(int(entry.name))
    return found


async def test_x51_nothing_is_left_of_a_server_killed_while_a_sandbox_starts(target: AttackTarget) -> None:
    before = orphans()
    for moment in range(6):
        async with victim(target, "sleep 30") as server:
            await asyncio.sleep(random.Random(moment).uniform(0, 0.03))

            server.kill()
            await server.wait()

            await gone(target.mark)

    deadline = time.monotonic() + 30
    while left := orphans() - before:
        assert time.monotonic() < deadline, left
        await asyncio.sleep(0.02)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def mounts() -> int:
    return len(Path("/proc/self/mounts").read_text().splitlines())


def children() -> list[int]:
    """Return our children, dead ones that nobody waited for included."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(entry.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(entry.parent.name))
        except (OSError, ValueError):
            continue
    return found


def own_groups() -> int:
    """Return how many control groups of this process there are."""
    return len(list(Path("/sys/fs/cgroup").glob(f"**/deerflow-{os.getpid()}-*")))


async def test_x52_hundreds_of_commands_leave_nothing(target: AttackTarget, memory: None) -> None:
    rounds = 300 if target.tier == "isolated" and os.geteuid() == 0 else 60
    await target.run("true")
    gc.collect()
    before = open_descriptors(), mounts(), children()
    at_once = asyncio.Semaphore(6)

    async def one(number: int) -> str:
        async with at_once:
            return (await target.run(f"echo {number}")).output

    outputs = await asyncio.gather(*(one(number) for number in range(rounds)))

    assert outputs == [f"{number}\n" for number in range(rounds)]
    gc.collect()
    deadline = time.monotonic() + 30  # the last ones may still be on their way out
    while (after := (open_descriptors(), mounts(), children())) != before:
        assert time.monotonic() < deadline, (before, after)
        await asyncio.sleep(0.02)
    await target.provider.aclose()
    assert own_groups() == 0


@pytest.mark.tiers("isolated")
async def test_x54_without_bwrap_nothing_runs(
    target: AttackTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await target.run("true")
    monkeypatch.setattr(bubblewrap, "SYSTEM_PATH", str(tmp_path))
    monkeypatch.setattr(bubblewrap, "PACKAGE", "no_such_package")

    with pytest.raises(SandboxUnavailableError, match=r"bubblewrap.*apt install"):
        await target.run(f"echo bad > {target.canary}")

    await target.sandbox.write_file("note.txt", "files go on")
    assert await target.sandbox.read_file("note.txt") == "files go on"
    tested = await target.provider.self_test()
    assert not tested.ok
    assert "apt install" in (tested.fix or "")


@pytest.mark.tiers("isolated")
async def test_x54_a_kernel_without_user_namespaces(
    target: AttackTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await target.run("true")
    broken = target.outside.parent / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "SYSTEM_PATH", str(broken.parent))

    with pytest.raises(SandboxUnavailableError, match=r"user namespaces.*sysctl"):
        await target.run(f"echo bad > {target.canary}")


@pytest.mark.tiers("isolated")
async def test_x54_a_sandbox_that_does_not_hold_runs_nothing(
    target: AttackTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaky = target.outside.parent / "bwrap"
    leaky.write_text('#!/bin/bash\nwhile [ "$1" != -- ]; do shift; done; shift; cd /tmp; exec "$@"\n')
    leaky.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "SYSTEM_PATH", str(leaky.parent))

    with pytest.raises(SandboxUnavailableError, match="does not hold"):
        await target.run(f"echo bad > {target.canary}")
