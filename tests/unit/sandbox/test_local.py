"""The local sandbox: the contract, and what only it has."""

from pathlib import Path

import pytest
from contracts.sandbox_contract import SandboxContract

from deerflow.config import SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import SandboxUnavailableError
from deerflow.sandbox import Sandbox, create_sandbox_provider


def local_sandbox(root: Path, *, host_bash: bool = True) -> Sandbox:
    settings = SandboxSettings(use="local", allow_host_bash=host_bash)
    folders = ThreadFolders("t1", root / "threads" / "t1")
    return create_sandbox_provider(settings).create(folders)  # type: ignore[attr-defined]


class TestLocalSandbox(SandboxContract):
    @pytest.fixture
    def sandbox(self, tmp_path: Path) -> Sandbox:
        return local_sandbox(tmp_path)


async def test_host_bash_is_off_unless_allowed(tmp_path: Path) -> None:
    sandbox = local_sandbox(tmp_path, host_bash=False)

    assert "allow_host_bash" in (sandbox.refusal or "")
    with pytest.raises(SandboxUnavailableError, match="allow_host_bash"):
        await sandbox.execute_command("true")
    await sandbox.write_file("a.txt", "files go on")
    assert await sandbox.read_file("a.txt") == "files go on"


async def test_secrets_of_the_server_stay_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")

    result = await local_sandbox(tmp_path).execute_command("env; cat /proc/$PPID/environ | tr '\\0' '\\n'")

    assert "sk-canary" not in result.output


async def test_host_paths_are_masked(tmp_path: Path) -> None:
    pieces: list[str] = []

    result = await local_sandbox(tmp_path).execute_command(
        "realpath .; python3 -c 'import os; print(os.getcwd())'", on_output=pieces.append
    )

    assert str(tmp_path) not in result.output + "".join(pieces)
    assert result.output == "/mnt/user-data/workspace\n" * 2


async def test_a_daemon_does_not_outlive_its_command(tmp_path: Path) -> None:
    sandbox = local_sandbox(tmp_path)

    await sandbox.execute_command("setsid sh -c 'sleep 1; touch survived' >/dev/null 2>&1 & disown")

    await sandbox.execute_command("sleep 1.3")
    assert not await sandbox.list_dir("/mnt/user-data/workspace")
