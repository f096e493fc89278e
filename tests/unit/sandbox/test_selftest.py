"""The self-test of confining tiers, its repetition, and the system-call filter that it checks."""

import asyncio

import pytest
from support.waiting import until

from deerflow.sandbox import SelfTest
from deerflow.sandbox.seccomp import build_filter
from deerflow.sandbox.selftest import RETRY_SECONDS, SelfTestCache, diagnose, judge, parse_probes


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


async def test_a_fix_of_the_operator_is_noticed() -> None:
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
