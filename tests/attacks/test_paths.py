"""P: paths and files. Every one is refused with a sentence, and nothing outside is touched."""

import asyncio
import os
import sys
import time

import pytest

from deerflow.errors import PathRefusedError, SandboxError
from deerflow.sandbox import Sandbox, openat2

from .conftest import ALL, CONFINED, AttackTarget

pytestmark = pytest.mark.tiers(*ALL)
WORKSPACE = "/mnt/user-data/workspace"


async def refused(sandbox: Sandbox, path: str, *, kind: type[SandboxError] = PathRefusedError) -> None:
    """Every file operation refuses the path."""
    with pytest.raises(kind):
        await sandbox.read_file(path)
    with pytest.raises(kind):
        await sandbox.download_file(path)
    with pytest.raises(kind):
        await sandbox.write_file(path, "x")
    with pytest.raises(kind):
        await sandbox.write_file(path, "x", append=True)
    with pytest.raises(kind):
        await sandbox.update_file(path, b"x")


async def test_p01_relative_steps_upwards(target: AttackTarget) -> None:
    for path in ("../../etc/passwd", "a/../../../x", "..", "./../x", f"{WORKSPACE}/../../../../etc/passwd"):
        await refused(target.sandbox, path)


async def test_p02_host_paths(target: AttackTarget) -> None:
    for path in ("/etc/passwd", str(target.canary), "/", "/mnt", "/proc/self/environ", "//etc/passwd"):
        with pytest.raises(SandboxError):
            await target.sandbox.read_file(path)
    for path in ("/etc/passwd", str(target.outside)):
        with pytest.raises(PathRefusedError):
            await target.sandbox.list_dir(path)
        with pytest.raises(PathRefusedError):
            await target.sandbox.glob(path, "*")
        with pytest.raises(PathRefusedError):
            await target.sandbox.grep(path, "canary")


async def test_p03_steps_upwards_after_a_virtual_prefix(target: AttackTarget) -> None:
    for path in (
        "/mnt/user-data/../../etc/passwd",
        "/mnt/skills/../../etc/passwd",
        "/mnt/user-data/workspace/..",
    ):
        await refused(target.sandbox, path)


async def test_p05_nul_in_a_name(target: AttackTarget) -> None:
    for path in ("a\0b", f"{WORKSPACE}/x\0/../../etc/passwd", "\0"):
        await refused(target.sandbox, path)


async def test_p07_backslashes_and_drives(target: AttackTarget) -> None:
    for path in ("..\\..\\etc\\passwd", "C:\\Windows", "C:x", "\\\\server\\share", "a\\b"):
        await refused(target.sandbox, path)


async def test_p08_names_and_paths_without_end(target: AttackTarget) -> None:
    for path in ("x" * 300, "d/" * 3000 + "x", "y/" * 150 + "x", "/".join(["z" * 200] * 30), "ü" * 200):
        await refused(target.sandbox, path)


async def test_p09_links_out(target: AttackTarget) -> None:
    workspace = target.folders.workspace
    (workspace / "absolute").symlink_to(target.canary)
    (workspace / "relative").symlink_to("../" * 20 + str(target.canary)[1:])
    (workspace / "folder").symlink_to(target.outside)
    (workspace / "dangling").symlink_to(target.outside / "new.txt")
    (workspace / "chain").symlink_to("folder")

    for path in (
        "absolute",
        "relative",
        "folder/canary.txt",
        "folder/new.txt",
        "dangling",
        "chain/canary.txt",
    ):
        await refused(target.sandbox, path)
    with pytest.raises(SandboxError):
        await target.sandbox.list_dir("folder")
    assert not [name for name in await target.sandbox.list_dir(WORKSPACE) if "canary" in name]
    assert (await target.sandbox.grep(WORKSPACE, "canary"))[0] == []
    assert (await target.sandbox.glob(WORKSPACE, "**/canary.txt"))[0] == []


async def test_p10_links_into_proc_and_dev(target: AttackTarget) -> None:
    for number, destination in enumerate(
        ("/proc/self/root/etc/passwd", "/proc/self/environ", "/dev/stdin", "/proc/self/fd/0", "/dev/zero")
    ):
        (target.folders.workspace / f"link{number}").symlink_to(destination)
        await refused(target.sandbox, f"link{number}")
    (target.folders.workspace / "root").symlink_to("/proc/self/root")
    await refused(target.sandbox, "root/etc/passwd")


FLIP = """
import os, sys
os.chdir(sys.argv[1])
os.mkdir('real'); open('real/file', 'w').write('inside')
os.symlink(sys.argv[2], 'link')
os.symlink(os.path.join(sys.argv[2], 'canary.txt'), 'file-link')
open('file-real', 'w').write('inside')
print('ready', flush=True)
while True:
    os.rename('real', 'spot'); os.rename('file-real', 'file')
    os.rename('spot', 'real'); os.rename('file', 'file-real')
    os.rename('link', 'spot'); os.rename('file-link', 'file')
    os.rename('spot', 'link'); os.rename('file', 'file-link')
"""


@pytest.mark.tiers("isolated")
@pytest.mark.parametrize("way", ["openat2", "walking"])
async def test_p12_a_link_that_flips_while_we_look(
    target: AttackTarget, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "walking":
        monkeypatch.setattr(openat2, "HAS_OPENAT2", False)
    (target.outside / "file").write_text("canary")
    flipper = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", FLIP, target.folders.workspace, target.outside),
        stdout=asyncio.subprocess.PIPE,
    )
    assert flipper.stdout is not None
    await flipper.stdout.readline()
    seen: dict[str, int] = {}
    rounds = 30_000 if os.geteuid() == 0 else 6_000  # the file tools are the same for every user
    try:
        for number in range(rounds // 2):
            for attempt in (
                target.sandbox.read_file(("spot/file", "file")[number % 2]),
                target.sandbox.write_file("spot/file", "inside", append=bool(number % 2)),
            ):
                try:
                    text = await attempt or "written"
                except SandboxError:
                    text = "refused"
                seen[text] = seen.get(text, 0) + 1
    finally:
        flipper.kill()
        await flipper.wait()

    assert (target.outside / "file").read_text() == "canary"
    assert {text.replace("inside", "") for text in seen} <= {"", "written", "refused"}
    assert sum(seen.values()) == rounds
    assert min(seen.get("refused", 0), seen.get("written", 0)) > 10  # both sides of the flip were met
    (target.outside / "file").unlink()


async def test_p13_a_hard_link_to_a_file_outside(target: AttackTarget) -> None:
    (target.folders.workspace / "hard").hardlink_to(target.canary)

    await refused(target.sandbox, "hard")
    assert (await target.sandbox.grep(WORKSPACE, "canary"))[0] == []


async def test_p15_a_sparse_terabyte(target: AttackTarget, memory: None) -> None:
    with (target.folders.workspace / "huge.txt").open("wb") as file:
        file.truncate(1 << 40)
    started = time.monotonic()

    with pytest.raises(SandboxError, match="MB"):
        await target.sandbox.read_file("huge.txt")
    with pytest.raises(SandboxError, match="MB"):
        await target.sandbox.download_file("huge.txt")
    assert await target.sandbox.list_dir(WORKSPACE) == [f"{WORKSPACE}/huge.txt"]
    assert await target.sandbox.grep(WORKSPACE, "x") == ([], False)
    assert time.monotonic() - started < 60  # to read all of it would take an hour


async def test_p16_names_that_mean_something_elsewhere(target: AttackTarget) -> None:
    for name in ("CON", "nul.txt", "aux", "COM1", "lpt9.md", "trailing.", "trailing "):
        with pytest.raises(PathRefusedError):
            await target.sandbox.write_file(name, "x")
    await target.sandbox.write_file("Readme.md", "one")
    await target.sandbox.write_file("README.md", "two")
    assert await target.sandbox.read_file("Readme.md") == "one"


async def test_p18_writing_to_what_is_read_only(target: AttackTarget) -> None:
    for path in ("/mnt/skills/SKILL.md", "/mnt/skills/new.md", "/mnt/skills"):
        with pytest.raises(PathRefusedError, match="read-only"):
            await target.sandbox.write_file(path, "x")
    assert await target.sandbox.read_file("/mnt/skills/SKILL.md") == "skill"


@pytest.mark.tiers(*CONFINED)
async def test_p18_commands_cannot_write_skills_either(target: AttackTarget) -> None:
    await target.run(
        "echo x > /mnt/skills/SKILL.md; echo x > /mnt/skills/new; rm -f /mnt/skills/SKILL.md; true"
    )
    # the target's end checks that the skill is what it was


async def test_p19_replaced_between_look_and_open(target: AttackTarget) -> None:
    workspace = target.folders.workspace
    (workspace / "folder").mkdir()
    (workspace / "folder" / "keep.txt").write_text("keep")
    os.mkfifo(workspace / "pipe")
    started = time.monotonic()

    await refused(target.sandbox, "folder")
    await refused(target.sandbox, "pipe")
    with pytest.raises(SandboxError):
        await target.sandbox.write_file("folder/keep.txt/below", "x")
    assert (workspace / "folder" / "keep.txt").read_text() == "keep"
    assert time.monotonic() - started < 60  # a pipe would be waited for without end


async def test_p21_names_with_terminal_sequences_or_markup(target: AttackTarget) -> None:
    names = ("line\nbreak", "\x1b[31mred", 'quo"te', "<script>alert(1)</script>", "bad\udcff", "tab\there")
    for name in names:
        (target.folders.workspace / name.replace("/", "_")).mkdir()

    listed = await target.sandbox.list_dir(WORKSPACE)

    assert len(listed) == len(names)
    assert all(name.isprintable() and name.encode() for name in listed)


async def test_many_writers_of_one_file_leave_one_whole_content(target: AttackTarget) -> None:
    contents = [str(number) * 50_000 for number in range(8)]

    await asyncio.gather(*(target.sandbox.write_file("shared.txt", text) for text in contents))

    assert await target.sandbox.read_file("shared.txt") in contents
    assert await target.sandbox.list_dir(WORKSPACE) == [f"{WORKSPACE}/shared.txt"]
