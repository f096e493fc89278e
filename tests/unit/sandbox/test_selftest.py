"""The self-test of confining tiers, its repetition, and the system-call filter that it checks."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.waiting import until

from deerflow.config import SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import SandboxUnavailableError
from deerflow.sandbox import PathMapping, SelfTest
from deerflow.sandbox.local import LocalSandbox, files_of
from deerflow.sandbox.paths import thread_paths
from deerflow.sandbox.seccomp import build_filter
from deerflow.sandbox.selftest import RETRY_SECONDS, TestedSandboxProvider, diagnose, judge, parse_probes


class Provider(TestedSandboxProvider):
    """Has the given results of self-tests, the last one again and again, and its own clock."""

    def __init__(self, *results: SelfTest) -> None:
        super().__init__(SandboxSettings(), clock=lambda: self.now)
        self.now = 0.0
        self.results = results
        self.probed = 0

    async def probe(self) -> SelfTest:
        self.probed += 1
        await asyncio.sleep(0)
        return self.results[min(self.probed, len(self.results)) - 1]

    def create(self, folders: ThreadFolders, skills: Sequence[PathMapping] = ()) -> LocalSandbox:
        return LocalSandbox(files_of(thread_paths(folders)), SandboxSettings())


async def test_a_failed_test_is_valid_for_a_while_and_then_repeated() -> None:
    provider = Provider(SelfTest(False, reason="broken"), SelfTest(True))

    for _ in range(3):
        with pytest.raises(SandboxUnavailableError, match="broken"):
            await provider.require_passed()
    assert provider.probed == 1
    provider.now += RETRY_SECONDS
    await provider.require_passed()
    assert provider.refusal is None


async def test_a_fix_of_the_operator_is_noticed(tmp_path: Path) -> None:
    provider = Provider(SelfTest(False, reason="broken"), SelfTest(True))
    folders = ThreadFolders("t1", tmp_path / "t1")
    await provider.self_test()

    async with provider.acquire(folders):
        assert "broken" in (provider.refusal or "")
    provider.now += RETRY_SECONDS
    async with provider.acquire(folders):
        await until(lambda: provider.refusal is None)
    async with provider.acquire(folders):  # there is nothing to test any more
        pass
    await provider.aclose()

    assert provider.probed == 2


async def test_many_that_did_not_start_at_once_are_one_test() -> None:
    provider = Provider(SelfTest(True))

    errors = await asyncio.gather(*(provider.start_error("no message") for _ in range(20)))

    assert all("Run it again" in str(error) for error in errors)
    assert provider.probed == 1


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
