"""Choosing a provider, and the sandboxes that it keeps."""

import sys
from pathlib import Path

import pytest

from deerflow.config import SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import ConfigError, DeerFlowError
from deerflow.sandbox import PathMapping, create_sandbox_provider, pool, tier_of
from deerflow.sandbox.local import LocalSandboxProvider


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
def test_current_and_old_names_select_a_tier(use: str, tier: str) -> None:
    assert create_sandbox_provider(SandboxSettings(use=use)).tier == tier


@pytest.mark.parametrize("use", ["nonsense", "no.such.module:Thing", "os:getcwd", "pathlib:Path"])
def test_an_unusable_choice_is_an_error_at_start(use: str) -> None:
    with pytest.raises(ConfigError):
        create_sandbox_provider(SandboxSettings(use=use))


def test_a_class_can_be_named_by_its_module() -> None:
    chosen = create_sandbox_provider(SandboxSettings(use="deerflow.sandbox.landlock:LandlockSandboxProvider"))

    assert chosen.tier == "landlock"


@pytest.mark.parametrize("use", ["local", "isolated", "landlock"])
async def test_skills_are_mounted_where_the_settings_say(tmp_path: Path, use: str) -> None:
    skills = tmp_path / "skills"
    skills.mkdir(mode=0o755)
    (skills / "SKILL.md").write_text("Know how.")
    mounted = [PathMapping("/mnt/know-how", skills, read_only=True)]
    sandboxes = create_sandbox_provider(SandboxSettings(use=use), skills=lambda _: list(mounted))

    async with sandboxes.acquire(ThreadFolders("t1", tmp_path / "t1")) as sandbox:
        assert await sandbox.read_file("/mnt/know-how/SKILL.md") == "Know how."
        with pytest.raises(DeerFlowError):
            await sandbox.write_file("/mnt/know-how/SKILL.md", "Other.")
        with pytest.raises(DeerFlowError):
            await sandbox.read_file("/mnt/skills/SKILL.md")
    mounted.append(PathMapping("/mnt/skills/team", skills, read_only=True))
    async with sandboxes.acquire(ThreadFolders("t1", tmp_path / "t1")) as sandbox:
        assert await sandbox.read_file("/mnt/skills/team/SKILL.md") == "Know how."
    await sandboxes.aclose()


async def test_a_thread_keeps_its_sandbox(tmp_path: Path) -> None:
    sandboxes = provider()
    folders = ThreadFolders("t1", tmp_path / "t1")

    async with sandboxes.acquire(folders) as first, sandboxes.acquire(folders) as second:
        assert first is second
    async with sandboxes.acquire(folders) as third:
        assert third is first


async def test_idle_sandboxes_are_evicted_and_used_ones_not(
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
