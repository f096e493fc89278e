"""Virtual paths, mounts and the rewriting of both."""

from pathlib import Path

import pytest

from deerflow.config.sandbox import MountSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import ConfigError, PathRefusedError
from deerflow.sandbox import PathMapping, PathTable, thread_paths
from deerflow.sandbox.paths import checked_mount, shown
from deerflow.sandbox.supervised import PathRewriter


@pytest.fixture
def table(tmp_path: Path) -> PathTable:
    skills = tmp_path / "skills"
    skills.mkdir()
    return thread_paths(
        ThreadFolders("t1", tmp_path / "t1"), skills=[PathMapping("/mnt/skills", skills, read_only=True)]
    )


@pytest.mark.parametrize(
    ("path", "virtual"),
    [
        ("a.txt", "/mnt/user-data/workspace/a.txt"),
        ("./deep//a.txt", "/mnt/user-data/workspace/deep/a.txt"),
        ("/mnt/user-data/outputs/b.md", "/mnt/user-data/outputs/b.md"),
        ("/mnt/skills/public/x/SKILL.md", "/mnt/skills/public/x/SKILL.md"),
        ("/mnt/user-data/workspace/", "/mnt/user-data/workspace"),
    ],
)
def test_paths_are_found_by_their_mapping(table: PathTable, path: str, virtual: str) -> None:
    assert table.resolve(path).virtual == virtual


def test_a_name_that_only_starts_like_a_mapping_is_outside(table: PathTable) -> None:
    with pytest.raises(PathRefusedError, match="outside"):
        table.resolve("/mnt/user-data/workspace-of-others/x")


def test_the_longest_mapping_wins(tmp_path: Path) -> None:
    table = PathTable(
        [PathMapping("/mnt/a", tmp_path), PathMapping("/mnt/a/b", tmp_path / "b", read_only=True)]
    )

    assert table.resolve("/mnt/a/b/c").mapping.read_only
    assert not table.resolve("/mnt/a/bc").mapping.read_only


def test_a_parent_of_mappings_stands_for_them(table: PathTable) -> None:
    assert [found.virtual for found in table.resolve_folders("/mnt/user-data")] == [
        *("/mnt/user-data/outputs", "/mnt/user-data/uploads", "/mnt/user-data/workspace")
    ]


@pytest.mark.parametrize(
    "where", ["relative", "/", "/usr/x", "/etc", "/mnt", "/mnt/user-data", "/mnt/../etc", "/proc/x", "/tmp"]
)
def test_mounts_that_would_hide_the_system_are_errors(tmp_path: Path, where: str) -> None:
    with pytest.raises(ConfigError, match=r"sandbox\.mounts"):
        checked_mount(MountSettings.model_construct(host_path=str(tmp_path), container_path=where))


def test_a_mount_of_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="host_path"):
        checked_mount(MountSettings(host_path=str(tmp_path / "missing"), container_path="/mnt/data"))


def test_messages_show_paths_on_one_line() -> None:
    assert shown("a\nb\x1b[31m") == "a\\nb\\x1b[31m"
    assert len(shown("x" * 10_000)) < 300


def test_commands_get_host_paths_and_output_virtual_ones(table: PathTable, tmp_path: Path) -> None:
    rewriter = PathRewriter(table)
    workspace = tmp_path / "t1" / "user-data" / "workspace"

    command = rewriter.to_host(
        "cat /mnt/user-data/workspace/a '/mnt/skills'/b x/mnt/skills /mnt/skills-of-others"
    )

    assert command == f"cat {workspace}/a '{tmp_path}/skills'/b x/mnt/skills /mnt/skills-of-others"
    assert rewriter.to_virtual(f"error in {workspace}/a: {tmp_path}/skills") == (
        "error in /mnt/user-data/workspace/a: /mnt/skills"
    )


def test_spaces_in_host_paths_survive_the_shell(tmp_path: Path) -> None:
    table = PathTable([PathMapping("/mnt/user-data/workspace", tmp_path / "my files")])

    assert PathRewriter(table).to_host("ls /mnt/user-data/workspace").endswith("my\\ files")
