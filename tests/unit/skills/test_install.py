"""A skill is installed under its own name, whole, or not at all."""

from pathlib import Path
from typing import BinaryIO

import pytest
from support.skill_archives import ATTACKS, GOOD, MATTER, zipped

from deerflow.errors import ConflictError, DeerFlowError, InvalidInputError
from deerflow.skills import install_skill


def opened(folder: Path, data: bytes) -> BinaryIO:
    path = folder / "x.skill"
    path.write_bytes(data)
    return path.open("rb")


def test_a_skill_is_installed_under_its_own_name(tmp_path: Path) -> None:
    with opened(tmp_path, zipped(GOOD)) as file:
        skill = install_skill(file, tmp_path / "skills")

    home = tmp_path / "skills" / "custom" / "tidy-notes"
    assert (skill.name, skill.category, skill.file) == ("tidy-notes", "custom", home / "SKILL.md")
    assert [path.name for path in (tmp_path / "skills" / "custom").iterdir()] == ["tidy-notes"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_leaves_nothing_behind(attack: str, tmp_path: Path) -> None:
    with opened(tmp_path, ATTACKS[attack][0]()) as file, pytest.raises(DeerFlowError):
        install_skill(file, tmp_path / "skills")

    assert sorted(path.name for path in tmp_path.rglob("*")) == ["custom", "skills", "x.skill"]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b"no front matter", "front matter"),
        (b"---\nname: ../evil\ndescription: x\n---\n", "name"),
        (b"\xff\xfe", "cannot be used"),
    ],
)
def test_an_archive_without_a_usable_skill_is_refused(text: bytes, match: str, tmp_path: Path) -> None:
    with (
        opened(tmp_path, zipped({"SKILL.md": text})) as file,
        pytest.raises(InvalidInputError, match=match),
    ):
        install_skill(file, tmp_path / "skills")

    assert list((tmp_path / "skills" / "custom").iterdir()) == []


@pytest.mark.parametrize("place", ["custom/tidy-notes", "custom/elsewhere", "public/tidy-notes"])
def test_a_known_name_is_a_conflict(place: str, tmp_path: Path) -> None:
    known = tmp_path / "skills" / place / "SKILL.md"
    known.parent.mkdir(parents=True)
    known.write_text(MATTER)

    with opened(tmp_path, zipped(GOOD)) as file, pytest.raises(ConflictError, match="already"):
        install_skill(file, tmp_path / "skills")

    assert known.read_text() == MATTER


def test_a_folder_in_the_way_is_a_conflict(tmp_path: Path) -> None:
    (tmp_path / "skills" / "custom" / "tidy-notes").mkdir(parents=True)

    with opened(tmp_path, zipped(GOOD)) as file, pytest.raises(ConflictError, match="folder"):
        install_skill(file, tmp_path / "skills")
