"""The landlock sandbox: the contract, and what only it promises."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from contracts.sandbox_contract import SandboxContract

from deerflow.config import SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import SandboxUnavailableError
from deerflow.sandbox import Sandbox, landlock
from deerflow.sandbox.landlock import LandlockSandboxProvider

pytestmark = pytest.mark.skipif(
    landlock.landlock_abi() < landlock.NEEDED_ABI,
    reason=f"Landlock version {landlock.landlock_abi()} here, the tier needs {landlock.NEEDED_ABI}",
)


@pytest.fixture
def provider() -> LandlockSandboxProvider:
    return LandlockSandboxProvider(SandboxSettings())


@pytest.fixture
async def sandbox(provider: LandlockSandboxProvider, reachable: Path) -> AsyncIterator[Sandbox]:
    async with provider.acquire(ThreadFolders("t1", reachable / "users" / "u" / "threads" / "t1")) as one:
        yield one


class TestLandlockSandbox(SandboxContract):
    """The contract holds here too."""


async def test_the_self_test_passes(provider: LandlockSandboxProvider) -> None:
    tested = await provider.self_test()

    assert [probe for probe in tested.probes if not probe.ok] == []
    assert tested.ok
    assert len(tested.probes) > 10


async def test_an_old_kernel_is_a_refusal_with_its_fix(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landlock, "landlock_abi", lambda: 3)

    with pytest.raises(SandboxUnavailableError, match=r"Landlock version 3.*newer kernel"):
        await sandbox.execute_command("true")

    await sandbox.write_file("a.txt", "files go on")


async def test_git_and_a_temporary_folder_work(sandbox: Sandbox) -> None:
    result = await sandbox.execute_command(
        "git init -q . && echo x > /tmp/a && cat /tmp/a && git status --short | head -1; mktemp", timeout=30
    )

    assert result.output.startswith("x\n")
    assert "/tmp/tmp." in result.output
