"""Choosing, lending and keeping sandboxes."""

import asyncio
import sys
from pathlib import Path

import pytest
from support.waiting import until

from deerflow.config import SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import ConfigError
from deerflow.sandbox import create_sandbox_provider, pool, tier_of
from deerflow.sandbox.base import FileLocks, SelfTest
from deerflow.sandbox.local import LocalSandboxProvider
from deerflow.sandbox.seccomp import build_filter
from deerflow.sandbox.selftest import RETRY_SECONDS, SelfTestCache, diagnose, judge, parse_probes


def provider() -> LocalSandboxProvider:
    return LocalSandboxProvider(SandboxSettings(use="local"))


def test_absent_means_the_best_of_the_system() -> None:
    assert tier_of(SandboxSettings()) == ("isolated" if sys.platform == "linux" else "local")


@pytest.mark.parametrize(
    ("use", "tier"),
    [
        ("local", "local"),
        ("deerflow.sandbox.local:LocalSandboxProvider", "local"),
        ("isolated", "isolated"),
        ("landlock", "landlock"),
    ],
)
def test_names_of_today_and_yesterday_choose_a_tier(use: str, tier: str) -> None:
    assert create_sandbox_provider(SandboxSettings(use=use)).tier == tier


@pytest.mark.parametrize("use", ["nonsense", "no.such.module:Thing", "os:getcwd", "pathlib:Path"])
def test_an_unusable_choice_is_an_error_at_start(use: str) -> None:
    with pytest.raises(ConfigError):
        create_sandbox_provider(SandboxSettings(use=use))


def test_a_class_can_be_named_by_its_module() -> None:
    chosen = create_sandbox_provider(SandboxSettings(use="deerflow.sandbox.landlock:LandlockSandboxProvider"))

    assert chosen.tier == "landlock"


async def test_a_thread_keeps_its_sandbox(tmp_path: Path) -> None:
    sandboxes = provider()
    folders = ThreadFolders("t1", tmp_path / "t1")

    async with sandboxes.acquire(folders) as first, sandboxes.acquire(folders) as second:
        assert first is second
    async with sandboxes.acquire(folders) as third:
        assert third is first


async def test_idle_sandboxes_are_forgotten_and_lent_ones_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MAX_IDLE", 2)
    sandboxes = provider()
    kept = ThreadFolders("kept", tmp_path / "kept")

    async with sandboxes.acquire(kept) as sandbox:
        seen = []
        for number in (0, 1, 2, 3, 4, 4, 0):
            async with sandboxes.acquire(ThreadFolders(str(number), tmp_path / str(number))) as other:
                seen.append(other)
        assert seen[4] is seen[5]
        assert seen[0] is not seen[6]
        async with sandboxes.acquire(kept) as again:
            assert again is sandbox


async def test_a_sandbox_is_released_when_its_run_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandboxes = provider()
    folders = ThreadFolders("t1", tmp_path / "t1")

    monkeypatch.setattr(pool, "MAX_IDLE", 0)
    with pytest.raises(RuntimeError):
        async with sandboxes.acquire(folders) as first:
            raise RuntimeError

    async with sandboxes.acquire(folders) as second:
        assert second is not first


async def test_a_failed_test_is_believed_for_a_while_and_then_tried_again() -> None:
    now = 0.0
    results = [SelfTest(False, reason="broken"), SelfTest(True)]

    async def probe() -> SelfTest:
        return results.pop(0)

    tests = SelfTestCache(probe, clock=lambda: now)

    for _ in range(3):
        with pytest.raises(Exception, match="broken"):
            await tests.require()
    now += RETRY_SECONDS
    await tests.require()
    assert tests.refusal is None


async def test_what_an_operator_mended_shows_by_itself() -> None:
    now = 0.0
    results = [SelfTest(False, reason="broken"), SelfTest(True)]

    async def probe() -> SelfTest:
        return results.pop(0)

    tests = SelfTestCache(probe, clock=lambda: now)
    await tests.test()

    tests.repeat_if_stale()
    assert "broken" in (tests.refusal or "")
    now += RETRY_SECONDS
    tests.repeat_if_stale()
    await until(lambda: tests.refusal is None)
    tests.repeat_if_stale()  # there is nothing to look for any more
    await tests.aclose()

    assert results == []


async def test_many_that_did_not_start_at_once_are_one_test() -> None:
    probed = 0

    async def probe() -> SelfTest:
        nonlocal probed
        probed += 1
        await asyncio.sleep(0)
        return SelfTest(True)

    tests = SelfTestCache(probe)

    assert await asyncio.gather(*(tests.retest() for _ in range(20))) == [None] * 20
    assert probed == 1


def test_silence_of_a_probe_is_a_failure() -> None:
    tested = judge(parse_probes("user\tok\nfinished\tok\n"))

    assert not tested.ok
    assert "own network (no answer)" in (tested.reason or "")


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        ("bwrap: setting up uid map: Permission denied", "apparmor_restrict_unprivileged_userns"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "apparmor"),
        ("bwrap: No permissions to create new namespace", "user.max_user_namespaces"),
        ("bwrap: Can't find source path /root/x: Permission denied", "DEER_FLOW_HOME"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "systempaths=unconfined"),
        ("bubblewrap (bwrap) was not found", "apt install bubblewrap"),
        ("something new", "deerflow doctor"),
    ],
)
def test_every_failure_has_a_fix(said: str, fix: str) -> None:
    assert fix in (diagnose(said).fix or "")


def test_the_filter_is_a_whole_program_for_both_processors() -> None:
    for machine in ("x86_64", "aarch64"):
        for has_namespaces in (True, False):
            program = build_filter((1, 2, 10), has_namespaces=has_namespaces, machine=machine)
            assert len(program) % 8 == 0
            assert len(program) // 8 < 4096


async def test_a_file_lock_serves_one_task_at_a_time_and_its_owner_again() -> None:
    locks, order = FileLocks(), []

    async def work(name: str) -> None:
        async with locks.hold("file"):
            async with locks.hold("file"):
                order.append(f"{name} in")
            await asyncio.sleep(0)
            order.append(f"{name} out")

    await asyncio.gather(work("a"), work("b"))

    assert order == ["a in", "a out", "b in", "b out"]
