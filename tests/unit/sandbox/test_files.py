"""The file operations of both kinds of systems."""

import asyncio
import os
import tracemalloc
from pathlib import Path

import pytest

from deerflow.config import SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import PathRefusedError, SandboxError
from deerflow.sandbox import openat2, thread_paths
from deerflow.sandbox.files import PortableThreadFiles, ThreadFiles
from deerflow.sandbox.hosted import LISTING_MAX_ENTRIES
from deerflow.sandbox.local import LocalSandbox

WORKSPACE = "/mnt/user-data/workspace"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folders = ThreadFolders("t1", tmp_path / "t1")
    folders.create()
    (tmp_path / "canary.txt").write_text("canary")
    return folders.workspace


@pytest.fixture(params=["openat2", "walking", "portable"])
def sandbox(workspace: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> LocalSandbox:
    if request.param == "portable":
        return sandbox_of(workspace, PortableThreadFiles)
    monkeypatch.setattr(openat2, "HAS_OPENAT2", request.param == "openat2")
    return sandbox_of(workspace)


def sandbox_of(workspace: Path, files: type[ThreadFiles] = ThreadFiles) -> LocalSandbox:
    table = thread_paths(ThreadFolders("t1", workspace.parent.parent))
    return LocalSandbox(files(table), SandboxSettings())


async def test_files_are_written_read_listed_and_found(sandbox: LocalSandbox) -> None:
    await sandbox.update_file("a/b.txt", b"one\n")
    await sandbox.write_file("a/b.txt", "two\n", append=True)
    await sandbox.write_file("a/new.txt", "x" * 200_000, append=True)

    assert await sandbox.read_file("a/b.txt") == "one\ntwo\n"
    assert len(await sandbox.download_file("a/new.txt")) == 200_000
    assert await sandbox.list_dir(WORKSPACE, max_depth=2) == [
        *(f"{WORKSPACE}/a/", f"{WORKSPACE}/a/b.txt", f"{WORKSPACE}/a/new.txt")
    ]
    assert await sandbox.glob(WORKSPACE, "**/b.*", max_results=5) == (
        [f"{WORKSPACE}/a/b.txt"],
        False,
    )
    matches, _ = await sandbox.grep(WORKSPACE, "two")
    assert [(match.path, match.line) for match in matches] == [(f"{WORKSPACE}/a/b.txt", 2)]


async def test_links_lead_nowhere(sandbox: LocalSandbox, workspace: Path, tmp_path: Path) -> None:
    (workspace / "file").symlink_to(tmp_path / "canary.txt")
    (workspace / "folder").symlink_to(tmp_path)
    (workspace / "hard").hardlink_to(tmp_path / "canary.txt")

    for path in ("file", "folder/canary.txt", "folder/new.txt", "hard"):
        with pytest.raises(PathRefusedError):
            await sandbox.download_file(path)
        with pytest.raises(PathRefusedError):
            await sandbox.update_file(path, b"bad")
        with pytest.raises(PathRefusedError):
            await sandbox.write_file(path, "bad", append=True)
    assert (await sandbox.grep(WORKSPACE, "canary"))[0] == []
    assert (tmp_path / "canary.txt").read_text() == "canary"
    assert not (tmp_path / "new.txt").exists()


async def test_a_link_within_the_folder_may_be_read(workspace: Path) -> None:
    if not openat2.HAS_OPENAT2:
        pytest.skip("without openat2 no link is followed at all")
    sandbox = sandbox_of(workspace)
    (workspace / "real.txt").write_text("real")
    (workspace / "link.txt").symlink_to("real.txt")

    assert await sandbox.read_file("link.txt") == "real"


async def test_things_that_are_no_files_are_refused_at_once(sandbox: LocalSandbox, workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    (workspace / "folder").mkdir()

    for path in ("pipe", "folder"):
        with pytest.raises(PathRefusedError):
            await sandbox.download_file(path)
        with pytest.raises(PathRefusedError):
            await sandbox.update_file(path, b"x")


async def test_a_replaced_file_keeps_its_mode(workspace: Path) -> None:
    sandbox = sandbox_of(workspace)
    (workspace / "run.sh").write_text("old")
    (workspace / "run.sh").chmod(0o755)

    await sandbox.update_file("run.sh", b"new")

    assert (workspace / "run.sh").stat().st_mode & 0o777 == 0o755


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


async def test_a_failed_write_leaves_no_draft(
    sandbox: LocalSandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sandbox.update_file("a.txt", b"old")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(SandboxError, match="disk is full"):
        await sandbox.update_file("a.txt", b"new")

    assert contents(workspace) == {"a.txt": "old"}


async def test_a_text_of_another_encoding_is_readable(sandbox: LocalSandbox) -> None:
    await sandbox.update_file("utf16.txt", "hello ü".encode("utf-16"))
    await sandbox.update_file("latin.txt", "ü".encode("latin-1"))

    assert await sandbox.read_file("utf16.txt") == "hello ü"
    assert await sandbox.read_file("latin.txt") == "\ufffd"


async def test_a_huge_file_is_a_sentence(sandbox: LocalSandbox, workspace: Path) -> None:
    with (workspace / "huge.txt").open("wb") as file:
        file.truncate(20_000_000)

    with pytest.raises(SandboxError, match=r"19\.1 MB.*head, tail"):
        await sandbox.read_file("huge.txt")


async def test_an_endless_folder_is_listed_in_part(sandbox: LocalSandbox, workspace: Path) -> None:
    for number in range(LISTING_MAX_ENTRIES + 10):
        (workspace / str(number)).touch()

    listed = await sandbox.list_dir(WORKSPACE, max_depth=2)

    assert len(listed) == LISTING_MAX_ENTRIES + 1
    assert "more than" in listed[-1]


@pytest.mark.parametrize("pattern", ["", "/etc/*", "../*", "a/../../*", "x" * 2000])
async def test_patterns_that_cannot_be_used_are_explained(sandbox: LocalSandbox, pattern: str) -> None:
    with pytest.raises(SandboxError, match="pattern"):
        await sandbox.glob(WORKSPACE, pattern, max_results=5)


async def test_versions_distinguish_files_of_any_size_without_reading_huge_ones(
    sandbox: LocalSandbox, workspace: Path
) -> None:
    sizes = {"small": 10, "large": 2_000_000, "huge": 255 * 1024 * 1024}
    for name, size in sizes.items():
        with (workspace / name).open("wb") as file:
            file.truncate(size)

    tracemalloc.start()
    before = await asyncio.gather(*(sandbox.file_version(name) for name in [*sizes, *["huge"] * 20]))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for name in sizes:
        with (workspace / name).open("r+b") as file:
            file.write(b"!")
    after = [await sandbox.file_version(name) for name in sizes]

    assert None not in before
    assert len({*before, *after}) == 6
    assert most < 50_000_000
    assert await sandbox.file_version("nothing") is None
