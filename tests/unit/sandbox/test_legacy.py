"""A sandbox provider written for DeerFlow 2, used through `sandbox.use`."""

import asyncio
import subprocess
import threading
from collections import namedtuple
from pathlib import Path

import pytest
from support.waiting import until

from deerflow.config import SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import ConfigError, SandboxError, SandboxTimeoutError
from deerflow.sandbox import SandboxProvider, create_sandbox_provider
from deerflow.sandbox.legacy import LegacySandboxProvider

GrepMatch = namedtuple("GrepMatch", ["path", "line_number", "line"])


class FolderSandbox:
    """Commands and files in one folder of this host, synchronously."""

    def __init__(self, sandbox_id: str, folder: Path) -> None:
        self.id = sandbox_id
        self.folder = folder
        self.threads: set[str] = set()

    def execute_command(self, command: str) -> str:
        self.threads.add(threading.current_thread().name)
        done = subprocess.run(["bash", "-c", command], cwd=self.folder, capture_output=True, text=True)
        return done.stdout + done.stderr

    def read_file(self, path: str) -> str:
        return self._host(path).read_text()

    def write_file(self, path: str, content: str, append: bool = False) -> None:
        with self._host(path).open("a" if append else "w") as file:
            file.write(content)

    def update_file(self, path: str, content: bytes) -> None:
        self._host(path).write_bytes(content)

    def download_file(self, path: str) -> bytes:
        return self._host(path).read_bytes()

    def list_dir(self, path: str, max_depth: int = 2) -> list[str]:
        return [f"/{found.name}" for found in self._host(path).iterdir()]

    def glob(
        self, path: str, pattern: str, *, include_dirs: bool = False, max_results: int = 200
    ) -> tuple[list[str], bool]:
        found = [f"/{each.name}" for each in self._host(path).glob(pattern)]
        return found[:max_results], len(found) > max_results

    def grep(
        self,
        path: str,
        pattern: str,
        *,
        glob: str | None = None,
        literal: bool = False,
        case_sensitive: bool = False,
        max_results: int = 100,
    ) -> tuple[list[GrepMatch], bool]:
        lines = self._host(path).read_text().splitlines()
        return [GrepMatch(path, at, line) for at, line in enumerate(lines, 1) if pattern in line], False

    def _host(self, path: str) -> Path:
        return self.folder / path.lstrip("/")


class FolderSandboxProvider:
    """What a package for DeerFlow 2 has: `acquire` returns an id, `get` the sandbox, `release` ends it."""

    root: Path
    newest: "FolderSandboxProvider"

    def __init__(self) -> None:
        FolderSandboxProvider.newest = self
        self.sandboxes: dict[str, FolderSandbox] = {}
        self.events: list[str] = []
        self.is_starting = threading.Event()
        self.may_start = threading.Event()
        self.may_start.set()

    def acquire(self, thread_id: str | None = None) -> str:
        self.is_starting.set()
        assert self.may_start.wait(30)
        sandbox_id = f"folder-{thread_id}"
        folder = self.root / sandbox_id
        folder.mkdir(exist_ok=True)
        self.sandboxes.setdefault(sandbox_id, FolderSandbox(sandbox_id, folder))
        self.events.append(f"acquire {thread_id}")
        return sandbox_id

    def get(self, sandbox_id: str) -> FolderSandbox | None:
        return self.sandboxes.get(sandbox_id)

    def release(self, sandbox_id: str) -> None:
        del self.sandboxes[sandbox_id]
        self.events.append(f"release {sandbox_id}")

    def shutdown(self) -> None:
        self.events.append("shutdown")


@pytest.fixture
def provider(tmp_path: Path) -> SandboxProvider:
    FolderSandboxProvider.root = tmp_path
    settings = SandboxSettings(use=f"{__name__}:FolderSandboxProvider", bash_command_timeout=20)
    return create_sandbox_provider(settings)


async def test_its_commands_and_files_work(provider: SandboxProvider, tmp_path: Path) -> None:
    shown: list[str] = []
    async with provider.acquire(ThreadFolders("t1", tmp_path / "t1")) as sandbox:
        result = await sandbox.execute_command("echo here; echo wrong >&2", on_output=shown.append)
        await sandbox.write_file("/a.txt", "one\n")
        await sandbox.write_file("/a.txt", "two\n", append=True)
        await sandbox.update_file("/b.bin", b"\0\1")

        assert (result.exit_code, result.output) == (0, "here\nwrong\n")
        assert "".join(shown) == "here\nwrong\n"
        assert await sandbox.read_file("/a.txt") == "one\ntwo\n"
        assert await sandbox.download_file("/b.bin") == b"\0\1"
        assert await sandbox.list_dir("/") == ["/a.txt", "/b.bin"]
        assert await sandbox.glob("/", "*.txt") == (["/a.txt"], False)
        matches, more = await sandbox.grep("/a.txt", "two")
        assert [(match.path, match.line, match.text) for match in matches] == [("/a.txt", 2, "two")]
        assert not more
        assert sandbox.refusal is None
        with pytest.raises(SandboxError, match="No such file"):
            await sandbox.read_file("/missing")
        with pytest.raises(SandboxError, match="more than the 1 that fit"):
            await sandbox.download_file("/b.bin", max_bytes=1)
        with pytest.raises(SandboxTimeoutError):
            await sandbox.execute_command("sleep 5", timeout=0.1)
        theirs = FolderSandboxProvider.newest.sandboxes["folder-t1"]
        assert all(name.startswith("sandbox") for name in theirs.threads)
    await provider.aclose()

    assert FolderSandboxProvider.newest.events == ["acquire t1", "release folder-t1", "shutdown"]


async def test_it_is_acquired_with_the_first_use_and_released_after_the_last(
    provider: SandboxProvider, tmp_path: Path
) -> None:
    folders = ThreadFolders("t1", tmp_path / "t1")
    theirs = FolderSandboxProvider.newest

    async with provider.acquire(folders):
        pass
    assert theirs.events == []
    async with provider.acquire(folders) as first:
        async with provider.acquire(folders) as second:
            await asyncio.gather(*(each.execute_command("true") for each in (first, second)))
        assert theirs.events == ["acquire t1"]
    assert theirs.events == ["acquire t1", "release folder-t1"]


async def test_a_sandbox_that_starts_after_its_run_was_cancelled_is_released(
    provider: SandboxProvider, tmp_path: Path
) -> None:
    theirs = FolderSandboxProvider.newest
    theirs.may_start.clear()

    async def use() -> None:
        async with provider.acquire(ThreadFolders("t1", tmp_path / "t1")) as sandbox:
            await sandbox.execute_command("true")

    run = asyncio.create_task(use())
    await until(theirs.is_starting.is_set)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    theirs.may_start.set()

    await until(lambda: theirs.events == ["acquire t1", "release folder-t1"])
    await provider.aclose()


def test_a_class_with_half_of_the_interface_is_an_error() -> None:
    with pytest.raises(ConfigError):
        create_sandbox_provider(SandboxSettings(use=f"{__name__}:FolderSandbox"))


def test_the_adapter_is_named_as_a_custom_tier(provider: SandboxProvider) -> None:
    assert isinstance(provider, LegacySandboxProvider)
    assert provider.tier == "custom"
