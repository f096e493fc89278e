"""What attacks start from: a sandbox of each tier, a canary outside, and a look at what is left after."""

import asyncio
import os
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deerflow.config import SandboxSettings
from deerflow.config.sandbox import LimitSettings
from deerflow.domain import ThreadFolders
from deerflow.sandbox import (
    CommandResult,
    PathMapping,
    Sandbox,
    SandboxProvider,
    SelfTest,
    create_sandbox_provider,
)
from deerflow.sandbox.landlock import NEEDED_ABI, landlock_abi

LIMITS = LimitSettings(
    max_commands=8,
    memory_mb=192,
    max_processes=64,
    cpu_seconds=20,
    max_file_mb=16,
    disk_mb=48,
    max_files=2000,
    tmp_mb=16,
)
HAS_PYTHON = Path("/usr/bin/python3").exists()
CONFINED = ("isolated", "landlock")
"""Tiers that claim to keep commands in."""
ALL = (*CONFINED, "local")
"""Tiers that claim to keep the file tools in."""


@dataclass
class AttackTarget:
    """One tier's sandbox with everything an attack could want to reach."""

    tier: str
    sandbox: Sandbox
    provider: SandboxProvider
    folders: ThreadFolders
    outside: Path
    """A folder beside the thread's, with a canary in it."""
    mark: str
    """A word in the environment of every process of this sandbox."""

    @property
    def canary(self) -> Path:
        return self.outside / "canary.txt"

    async def run(self, command: str, *, timeout: float = 60) -> CommandResult:
        """Run a command that must come back by itself."""
        return await self.sandbox.execute_command(command, timeout=timeout)

    async def python(self, script: str, *, timeout: float = 60) -> CommandResult:
        """Run a Python script inside, with the system's interpreter."""
        if not HAS_PYTHON:
            pytest.skip("the attack is written for /usr/bin/python3, which this system does not have")
        await self.sandbox.write_file("attack.py", script)
        return await self.run("/usr/bin/python3 attack.py", timeout=timeout)

    def other_thread(self, name: str = "t2") -> ThreadFolders:
        """Return the folders of another thread of the same user."""
        return ThreadFolders(name, self.folders.root.parent / name)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "tiers(*names): the sandbox tiers that an attack runs against")


@pytest.fixture
def tier(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each attack against every tier that claims to stop it, files' attacks against all."""
    if "tier" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("tiers")
        metafunc.parametrize("tier", marker.args if marker else CONFINED, indirect=True)


@pytest.fixture
async def target(tier: str) -> AsyncIterator[AttackTarget]:
    if tier == "landlock" and landlock_abi() < NEEDED_ABI:
        pytest.skip(f"this kernel has Landlock version {landlock_abi()}, the tier needs {NEEDED_ABI}")
    mark = f"attack-{uuid.uuid4().hex}"
    with open_folder() as root:
        outside = root / "outside"
        outside.mkdir()
        (outside / "canary.txt").write_text("canary")
        for path in (outside, outside / "canary.txt"):
            path.chmod(0o777)  # only the sandbox stands between a command and the canary
        settings = SandboxSettings(
            use=tier, allow_host_bash=True, limits=LIMITS, environment={"ATTACK_MARK": mark}
        )
        skills = root / "skills"
        skills.mkdir()
        (skills / "SKILL.md").write_text("skill")
        skills.chmod(0o777)
        provider = create_sandbox_provider(
            settings, skills=lambda _: [PathMapping("/mnt/skills", skills, read_only=True)]
        )
        folders = ThreadFolders("t1", root / "users" / "u" / "threads" / "t1")
        async with provider.acquire(folders) as sandbox:
            sandbox.prepare()  # attacks put files into its folders
            yield AttackTarget(tier, sandbox, provider, folders, outside, mark)
        await provider.aclose()
        await gone(mark)
        assert sorted(path.name for path in outside.iterdir()) == ["canary.txt"]
        assert (outside / "canary.txt").read_text() == "canary"
        assert stat.S_IMODE((outside / "canary.txt").stat().st_mode) == 0o777
        assert (skills / "SKILL.md").read_text() == "skill"


class open_folder:  # noqa: N801 - used as a function
    """A temporary folder that the user who runs commands can enter, which pytest's own is not."""

    def __enter__(self) -> Path:
        self._path = Path(tempfile.mkdtemp(prefix="deerflow-attack-"))
        self._path.chmod(0o711)
        return self._path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


@pytest.fixture
def memory() -> Iterator[None]:
    """The server's own memory stays flat, whatever a command does."""
    before = resident_mb()
    yield
    assert resident_mb() - before < 40


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1_048_576


def marked_processes(mark: str) -> list[int]:
    """Return live processes that have `mark` in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


async def forty_marked(mark: str) -> None:
    """Wait until forty processes bear `mark`: one in the middle of its exec shows no environment."""
    async with asyncio.timeout(60):
        while len(marked_processes(mark)) < 40:  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(0.02)


async def gone(mark: str) -> float:
    """Wait until no process bears `mark`, and return how long some did: one that was killed ends soon."""
    started = time.monotonic()
    while left := marked_processes(mark):
        assert time.monotonic() - started < 30, f"processes of the attack are left: {left}"
        await asyncio.sleep(0.02)
    return time.monotonic() - started


__all__ = ["ALL", "CONFINED", "LIMITS", "AttackTarget", "SelfTest", "forty_marked", "gone"]
