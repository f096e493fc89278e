"""The isolated sandbox: the contract, and what only it promises."""

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from contracts.sandbox_contract import SandboxContract

from deerflow.config import Paths, SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import SandboxUnavailableError
from deerflow.sandbox import Sandbox, bubblewrap, choose_users_root, remove_tree, users
from deerflow.sandbox.isolated import IsolatedSandboxProvider
from deerflow.sandbox.paths import PathMapping, temporary_folder

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only a root server gives up root")


def thread(root: Path, name: str = "t1") -> ThreadFolders:
    return ThreadFolders(name, root / "users" / "u" / "threads" / name)


@pytest.fixture
async def provider() -> AsyncIterator[IsolatedSandboxProvider]:
    provider = IsolatedSandboxProvider(SandboxSettings())
    yield provider
    await provider.aclose()


@pytest.fixture
async def sandbox(provider: IsolatedSandboxProvider, reachable: Path) -> AsyncIterator[Sandbox]:
    async with provider.acquire(thread(reachable)) as acquired:
        yield acquired


class TestIsolatedSandbox(SandboxContract):
    """The contract holds here too."""


async def test_the_self_test_passes_with_more_than_ten_probes(provider: IsolatedSandboxProvider) -> None:
    tested = await provider.self_test()

    assert [probe for probe in tested.probes if not probe.ok] == []
    assert tested.ok
    assert len(tested.probes) > 10


async def test_nothing_starts_before_the_first_command(
    provider: IsolatedSandboxProvider, reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubblewrap, "find_bwrap", None)

    async with provider.acquire(thread(reachable)) as sandbox:
        await sandbox.write_file("a.txt", "x")
        assert await sandbox.read_file("a.txt") == "x"


async def test_a_missing_bwrap_is_a_refusal_and_files_go_on(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sandbox.execute_command("true")
    monkeypatch.setattr(bubblewrap, "SYSTEM_PATH", str(tmp_path))
    monkeypatch.setattr(bubblewrap, "PACKAGE", "no_such_package")

    with pytest.raises(SandboxUnavailableError, match="apt install bubblewrap"):
        await sandbox.execute_command("true")

    assert "bash is off" in (sandbox.refusal or "")
    await sandbox.write_file("a.txt", "x")
    monkeypatch.undo()
    assert (await sandbox.execute_command("cat a.txt")).output == "x"
    assert sandbox.refusal is None


async def test_a_bwrap_that_fails_is_a_refusal_with_its_fix(
    sandbox: Sandbox, reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sandbox.execute_command("true")
    broken = reachable / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "SYSTEM_PATH", str(reachable))

    with pytest.raises(SandboxUnavailableError, match="apparmor_restrict_unprivileged_userns"):
        await sandbox.execute_command("echo escaped > /tmp/escaped")

    assert await sandbox.list_dir("/mnt/user-data/workspace") == []


async def test_one_sandbox_that_does_not_start_switches_no_other_off(
    provider: IsolatedSandboxProvider, reachable: Path
) -> None:
    async with (
        provider.acquire(thread(reachable)) as broken,
        provider.acquire(thread(reachable, "t2")) as other,
    ):
        broken.prepare()
        temporary_folder(thread(reachable)).rmdir()

        with pytest.raises(SandboxUnavailableError, match=r"This command was not run: .* Run it again"):
            await broken.execute_command("true")

        assert (broken.refusal, other.refusal) == (None, None)
        assert (await other.execute_command("echo on")).output == "on\n"


async def test_a_recreated_thread_has_a_sandbox_of_its_own(
    provider: IsolatedSandboxProvider, reachable: Path
) -> None:
    async with provider.acquire(thread(reachable)) as sandbox:
        await sandbox.execute_command("mkdir deep; cd deep; export MOOD=good")
    remove_tree(thread(reachable).root)
    thread(reachable).create()

    async with provider.acquire(thread(reachable)) as sandbox:
        said = await sandbox.execute_command(
            'echo "$MOOD"; pwd; echo x > a.txt; echo y > /tmp/b; cat a.txt /tmp/b'
        )

    assert said.output == "\n/mnt/user-data/workspace\nx\ny\n"


async def test_the_settings_environment_reaches_commands(reachable: Path) -> None:
    provider = IsolatedSandboxProvider(SandboxSettings(environment={"GREETING": "hello 'you'"}))
    async with provider.acquire(thread(reachable)) as sandbox:
        assert (await sandbox.execute_command('echo "$GREETING"')).output == "hello 'you'\n"
    await provider.aclose()


async def test_mounts_and_skills_are_there_and_read_only_where_asked(reachable: Path) -> None:
    for name in ("skills", "data", "shared"):
        (reachable / name).mkdir()
        (reachable / name / "a.txt").write_text(name)
        (reachable / name).chmod(0o777)
    mounts = [
        {"host_path": str(reachable / "data"), "container_path": "/mnt/data", "read_only": True},
        {"host_path": str(reachable / "shared"), "container_path": "/mnt/shared"},
    ]
    provider = IsolatedSandboxProvider(
        SandboxSettings.model_validate({"mounts": mounts}),
        skills=lambda _: [PathMapping("/mnt/skills", reachable / "skills", read_only=True)],
    )

    async with provider.acquire(thread(reachable)) as sandbox:
        result = await sandbox.execute_command(
            "cat /mnt/skills/a.txt /mnt/data/a.txt /mnt/shared/a.txt; echo;"
            "for d in skills data shared; do touch /mnt/$d/new 2>/dev/null && echo wrote $d; done"
        )
        listed = await sandbox.list_dir("/mnt/data")

    assert result.output == "skillsdatashared\nwrote shared\n"
    assert listed == ["/mnt/data/a.txt"]
    await provider.aclose()


@needs_root
async def test_files_of_both_sides_belong_to_the_commands_user(sandbox: Sandbox, reachable: Path) -> None:
    await sandbox.write_file("deep/tool.txt", "x")
    await sandbox.execute_command("echo y > deep/shell.txt; echo z >> deep/tool.txt")

    owners = {path.stat().st_uid for path in thread(reachable).workspace.rglob("*")}
    assert owners == {users.SANDBOX_UID}
    assert await sandbox.read_file("deep/tool.txt") == "xz\n"


@needs_root
async def test_files_of_an_unconfined_time_are_handed_over(
    provider: IsolatedSandboxProvider, reachable: Path
) -> None:
    folders = thread(reachable)
    folders.create()
    (folders.workspace / "old.txt").write_text("old")
    outside = reachable / "outside.txt"
    outside.write_text("ours")
    (folders.workspace / "second-name.txt").hardlink_to(outside)

    async with provider.acquire(folders) as sandbox:
        result = await sandbox.execute_command("echo new > old.txt; echo bad >> second-name.txt; cat old.txt")

    assert result.output.endswith("new\n")
    assert outside.read_text() == "ours"
    assert outside.stat().st_uid == 0


@needs_root
def test_threads_of_a_closed_home_live_where_commands_can_reach_them(
    tmp_path: Path, reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "STATE_ROOT", reachable / "state")
    closed = tmp_path / "home"
    closed.mkdir(mode=0o700)

    root = choose_users_root(Paths(closed), SandboxSettings())

    assert root is not None
    assert root.is_relative_to(reachable / "state")
    assert users.can_enter(root, users.SANDBOX_UID)
    assert stat.S_IMODE(root.stat().st_mode) == 0o711
    assert choose_users_root(Paths(closed), SandboxSettings()) == root
    assert choose_users_root(Paths(tmp_path / "other"), SandboxSettings()) != root


@needs_root
def test_threads_stay_in_an_open_home_and_with_local(tmp_path: Path, reachable: Path) -> None:
    assert choose_users_root(Paths(reachable / "home"), SandboxSettings()) is None
    assert choose_users_root(Paths(tmp_path), SandboxSettings(use="local")) is None


@needs_root
async def test_a_thread_in_a_closed_home_works_from_its_chosen_place(
    provider: IsolatedSandboxProvider, tmp_path: Path, reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "STATE_ROOT", reachable / "state")
    (tmp_path / "home").mkdir(mode=0o700)
    paths = Paths(tmp_path / "home")
    chosen = Paths(paths.home, users_root=choose_users_root(paths, SandboxSettings()))

    async with provider.acquire(chosen.thread("u", "t1")) as sandbox:
        assert (await sandbox.execute_command("echo fine > a; cat a")).output == "fine\n"


@needs_root
async def test_folders_out_of_reach_are_shown_all_the_same(
    tmp_path: Path, reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "STATE_ROOT", reachable / "state")
    monkeypatch.setattr(bubblewrap, "STATE_ROOT", reachable / "state")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    skills = closed / "skills"
    skills.mkdir()
    (skills / "SKILL.md").write_text("skill")
    provider = IsolatedSandboxProvider(
        SandboxSettings(), skills=lambda _: [PathMapping("/mnt/skills", skills, read_only=True)]
    )

    async with provider.acquire(ThreadFolders("t1", closed / "some" / "where" / "t1")) as sandbox:
        result = await sandbox.execute_command(
            "cat /mnt/skills/SKILL.md; echo x > a; cat a; echo y > /mnt/skills/b"
        )

    assert result.output.startswith("skillx\n")
    assert [path.name for path in skills.iterdir()] == ["SKILL.md"]
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    await provider.aclose()


async def test_the_temporary_folder_lasts_from_call_to_call(sandbox: Sandbox) -> None:
    await sandbox.execute_command("echo kept > /tmp/a")

    assert (await sandbox.execute_command("cat /tmp/a")).output == "kept\n"


@needs_root
def test_a_wheels_bwrap_is_copied_to_where_the_user_can_run_it(
    tmp_path: Path, reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubblewrap, "STATE_ROOT", reachable / "state")
    monkeypatch.setattr(users, "STATE_ROOT", reachable / "state")
    monkeypatch.setattr(bubblewrap, "SYSTEM_PATH", str(tmp_path))
    monkeypatch.setattr(bubblewrap, "can_enter", lambda path, uid: False)

    found = bubblewrap.find_bwrap(users.SANDBOX_UID)

    assert found.is_relative_to(reachable / "state")
    assert users.can_enter(found, users.SANDBOX_UID)
    command = ["setpriv", f"--reuid={users.SANDBOX_UID}", "--clear-groups", str(found), "--version"]
    assert os.spawnvp(os.P_WAIT, command[0], command) == 0
    assert bubblewrap.find_bwrap(users.SANDBOX_UID) == found
