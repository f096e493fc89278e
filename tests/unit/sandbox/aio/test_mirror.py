"""Folders that are kept alike here and in a container, also when the container lies."""

import base64
import io
import tarfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from deerflow.domain import ThreadFolders
from deerflow.errors import SandboxError
from deerflow.sandbox import Sandbox, thread_paths
from deerflow.sandbox.aio import mirror as mirrors
from deerflow.sandbox.aio.api import AioApi
from deerflow.sandbox.aio.mirror import Mirror
from deerflow.sandbox.files import ThreadFiles

from .conftest import MakeProvider

Threads = Callable[[str], ThreadFolders]
OUTPUTS = "/mnt/user-data/outputs"


@pytest.fixture
async def sandbox(make_provider: MakeProvider, thread: Threads) -> AsyncIterator[Sandbox]:
    async with make_provider(thread_data_mounts=False).acquire(thread("t1")) as sandbox:
        yield sandbox


async def say(sandbox: Sandbox, command: str) -> str:
    return (await sandbox.execute_command(command, timeout=60)).output


async def test_changes_go_both_ways_and_so_do_removals(sandbox: Sandbox, thread: Threads) -> None:
    folders = thread("t1")
    await sandbox.write_file("a.txt", "one")
    await sandbox.write_file("deep/b.txt", "two")

    assert await say(sandbox, "cat a.txt deep/b.txt; rm a.txt; printf new > deep/c.txt") == "onetwo"
    assert not (folders.workspace / "a.txt").exists()
    assert (folders.workspace / "deep" / "c.txt").read_text() == "new"

    (folders.workspace / "deep" / "b.txt").unlink()
    await sandbox.write_file("deep/c.txt", "NEW")
    assert await say(sandbox, "ls deep; cat deep/c.txt") == "c.txt\nNEW"


async def test_a_file_of_the_same_size_is_noticed(sandbox: Sandbox) -> None:
    await say(sandbox, "printf aaa > x; printf bbb > y")
    await sandbox.write_file("x", "AAA")

    assert await say(sandbox, "cat x; printf BBB > y") == "AAA"
    assert await sandbox.read_file("y") == "BBB"


async def test_a_later_run_finds_its_files_and_copies_none_again(
    make_provider: MakeProvider, thread: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = make_provider(thread_data_mounts=False)
    async with provider.acquire(thread("t1")) as sandbox:
        await sandbox.write_file("mine.txt", "mine")
        await say(sandbox, "echo theirs > theirs.txt")
    packed: list[list[str]] = []
    pack = mirrors._packed
    monkeypatch.setattr(mirrors, "_packed", lambda root, names: packed.append(names) or pack(root, names))

    async with provider.acquire(thread("t1")) as sandbox:
        assert await say(sandbox, "cat mine.txt theirs.txt") == "minetheirs\n"

    assert packed == []


async def test_what_is_too_large_stays_and_is_named(
    sandbox: Sandbox, thread: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirrors, "MAX_TRANSFER_BYTES", 1000)

    output = await say(sandbox, "head -c 2000 /dev/zero > big.bin; echo small > small.txt")

    assert output == "\n[not copied to the thread's folders: workspace/big.bin]"
    assert (thread("t1").workspace / "small.txt").read_text() == "small\n"
    await sandbox.write_file("large.txt", "x" * 2000)
    with pytest.raises(SandboxError, match="thread_data_mounts"):
        await say(sandbox, "true")


async def test_links_stay_where_they_are(sandbox: Sandbox, thread: Threads, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    thread("t1").create()
    (thread("t1").workspace / "out").symlink_to(tmp_path / "secret")

    assert await say(sandbox, "ls; ln -s /etc/passwd theirs") == ""

    assert not (thread("t1").workspace / "theirs").is_symlink()


async def test_files_of_a_stopped_command_come_back(sandbox: Sandbox) -> None:
    await say(sandbox, "true")  # all is up: what follows only has to write a line in time

    with pytest.raises(SandboxError, match="still running"):
        await sandbox.execute_command(f"echo half > {OUTPUTS}/half.txt; sleep 30", timeout=3)

    assert await sandbox.read_file(f"{OUTPUTS}/half.txt") == "half\n"


class Liar:
    """A container that answers whatever it likes."""

    def __init__(self) -> None:
        self.listing = b""
        self.archive = b""

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/bash/exec", self.execute)
        app.router.add_post("/v1/file/write", self.write)
        app.router.add_get("/v1/file/download", self.download)
        return app

    async def execute(self, request: web.Request) -> web.Response:
        answer = {"status": "completed", "exit_code": 0, "stdout": base64.b64encode(self.listing).decode()}
        return web.json_response({"success": True, "data": answer})

    async def write(self, request: web.Request) -> web.Response:
        return web.json_response({"success": True, "data": {}})

    async def download(self, request: web.Request) -> web.Response:
        return web.Response(body=self.archive)


@pytest.fixture
async def lied_to(thread: Threads, tmp_path: Path) -> AsyncIterator[tuple[Mirror, Liar]]:
    folders, liar = thread("t1"), Liar()
    folders.create()
    runner = web.AppRunner(liar.application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with aiohttp.ClientSession() as http:
        api = AioApi(f"http://127.0.0.1:{runner.addresses[0][1]}", http)
        mirror = Mirror(folders, ThreadFiles(thread_paths(folders)), api)
        await mirror.push()
        yield mirror, liar
    await runner.cleanup()


def archive_of(*members: tuple[str, dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, keys in members:
            member = tarfile.TarInfo(name)
            member.size = 4
            for key, value in keys.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(b"evil"))
    return out.getvalue()


@pytest.mark.parametrize(
    "name",
    [
        "/etc/evil",
        "../evil",
        "workspace/../../evil",
        "/workspace/evil",
        "evil",
        "workspace//evil",
        "skills/evil",
    ],
)
async def test_a_file_that_leaves_the_folders_is_not_written(
    lied_to: tuple[Mirror, Liar], thread: Threads, name: str
) -> None:
    mirror, liar = lied_to
    liar.listing = f"4 1.5 {name}\0004 1.5 workspace/good\0".encode()
    liar.archive = archive_of((name, {}), ("workspace/good", {}))

    await mirror.pull()

    root = thread("t1").root
    found = [str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()]
    assert found == ["user-data/workspace/good"]


async def test_links_and_devices_of_an_archive_are_left_out(
    lied_to: tuple[Mirror, Liar], thread: Threads
) -> None:
    mirror, liar = lied_to
    kinds = {"a": tarfile.SYMTYPE, "b": tarfile.LNKTYPE, "c": tarfile.FIFOTYPE, "d": tarfile.CHRTYPE}
    liar.listing = b"".join(f"4 1.5 workspace/{name}\0".encode() for name in kinds)
    liar.archive = archive_of(
        *(
            (f"workspace/{name}", {"type": kind, "linkname": "/etc/passwd", "size": 0})
            for name, kind in kinds.items()
        )
    )

    await mirror.pull()

    assert list(thread("t1").workspace.iterdir()) == []


@pytest.mark.parametrize("listing", [b"nonsense", b"x 1.5 workspace/a\0", b"4 late workspace/a\0"])
async def test_a_listing_that_is_none_is_said(lied_to: tuple[Mirror, Liar], listing: bytes) -> None:
    mirror, liar = lied_to
    liar.listing = listing

    with pytest.raises(SandboxError, match="cannot be read"):
        await mirror.pull()


async def test_an_archive_that_is_none_is_said(lied_to: tuple[Mirror, Liar]) -> None:
    mirror, liar = lied_to
    liar.listing = b"4 1.5 workspace/a\0"
    liar.archive = b"no archive" * 100

    with pytest.raises(SandboxError, match="cannot be read"):
        await mirror.pull()
