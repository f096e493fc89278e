"""Skills are found on disk, and a broken one harms nobody."""

import logging
import os
from pathlib import Path

import pytest

from deerflow.agents.prompts import skills_section
from deerflow.skills import Skills


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def write(root: Path, folder: str, matter: str, body: str = "# Do it\n") -> Path:
    file = root / folder / "SKILL.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"---\n{matter}\n---\n{body}")
    return file


def test_skills_of_both_folders_are_found_with_what_they_say(tmp_path: Path) -> None:
    write(tmp_path, "public/deep-research", "name: deep-research\ndescription: Researches.\nlicense: MIT")
    write(
        tmp_path,
        "custom/team/notes",
        "name: notes\ndescription: |\n  Takes\n  <notes>.\nallowed-tools: [ls, read_file]",
    )

    research, notes = Skills(tmp_path).all()

    assert (research.name, research.category, research.license) == ("deep-research", "public", "MIT")
    assert research.path == "/mnt/skills/public/deep-research/SKILL.md"
    assert (notes.path, notes.allowed_tools) == (
        "/mnt/skills/custom/team/notes/SKILL.md",
        ("ls", "read_file"),
    )
    assert notes.description == "Takes ‹notes›."


@pytest.mark.parametrize(
    ("matter", "reason"),
    [
        ("description: No name.", "'name' is None"),
        ("name: Bad Name\ndescription: x", "lower-case letters"),
        ("name: ../up\ndescription: x", "lower-case letters"),
        ("name: silent", "'description' is missing"),
        ("name: a\ndescription: [unclosed", "no YAML"),
        ("name: a\ndescription: " + "[" * 100_000, "no YAML"),
        ("- just\n- a list", "has no keys"),
        ("name: a\ndescription: x\nallowed-tools: 7", "'allowed-tools' must be a list"),
        ("name: a\ndescription: !!python/object/apply:os.system ['true']", "no YAML"),
    ],
)
def test_a_broken_skill_is_left_out_with_its_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, matter: str, reason: str
) -> None:
    write(tmp_path, "public/good", "name: good\ndescription: Works.")
    write(tmp_path, "public/broken", matter)

    with caplog.at_level(logging.WARNING):
        found = Skills(tmp_path).all()

    assert [skill.name for skill in found] == ["good"]
    assert reason in caplog.text


def test_a_skill_that_is_taken_away_while_we_look_harms_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "public/good", "name: good\ndescription: Works.")
    gone = write(tmp_path, "public/gone", "name: gone\ndescription: Was there.")
    is_symlink = Path.is_symlink

    def look(path: Path) -> bool:
        found = is_symlink(path)
        if path == gone:
            gone.unlink()
        return found

    monkeypatch.setattr(Path, "is_symlink", look)

    assert [skill.name for skill in Skills(tmp_path).all()] == ["good"]


def test_files_without_front_matter_or_beyond_all_measure_are_left_out(tmp_path: Path) -> None:
    for name, content in {
        "plain": b"# Hello\n",
        "huge": b"x" * 1_000_001,
        "bytes": b"---\n\xff\xfe\n---\n",
    }.items():
        (tmp_path / "public" / name).mkdir(parents=True)
        (tmp_path / "public" / name / "SKILL.md").write_bytes(content)
    (tmp_path / "public" / "pipe").mkdir()
    os.mkfifo(tmp_path / "public" / "pipe" / "SKILL.md")
    (tmp_path / "public" / "link").mkdir()
    (tmp_path / "public" / "link" / "SKILL.md").symlink_to("/etc/hostname")

    assert Skills(tmp_path).all() == ()


def test_no_folder_means_no_skills(tmp_path: Path) -> None:
    assert Skills(None).all() == ()
    assert Skills(tmp_path / "nowhere").all() == ()


def test_a_disabled_skill_is_known_but_not_offered(tmp_path: Path) -> None:
    write(tmp_path, "public/one", "name: one\ndescription: First.")
    write(tmp_path, "public/two", "name: two\ndescription: Second.")

    skills = Skills(tmp_path, disabled={"one"})

    assert [skill.name for skill in skills.all()] == ["one", "two"]
    assert [skill.name for skill in skills.enabled()] == ["two"]


def test_a_custom_skill_stands_before_a_public_one_of_its_name(tmp_path: Path) -> None:
    write(tmp_path, "public/one", "name: one\ndescription: Public.")
    write(tmp_path, "custom/one", "name: one\ndescription: Mine.")

    [skill] = Skills(tmp_path).all()

    assert (skill.category, skill.description) == ("custom", "Mine.")


def test_what_lies_below_a_skill_belongs_to_it(tmp_path: Path) -> None:
    write(tmp_path, "public/one", "name: one\ndescription: First.")
    write(tmp_path, "public/one/examples/inner", "name: inner\ndescription: An example.")

    assert [skill.name for skill in Skills(tmp_path).all()] == ["one"]


def test_changes_on_disk_are_seen_after_a_moment(tmp_path: Path) -> None:
    clock = Clock()
    skills = Skills(tmp_path, clock=clock)
    write(tmp_path, "public/one", "name: one\ndescription: First.")
    first = skills.all()
    file = write(tmp_path, "public/two", "name: two\ndescription: Second.")

    at_once = skills.all()
    clock.now = 10
    later = skills.all()
    file.unlink()
    clock.now = 20

    assert [len(each) for each in (first, at_once, later, skills.all())] == [1, 1, 2, 1]


def test_the_prompt_lists_name_description_and_path(tmp_path: Path) -> None:
    write(tmp_path, "public/one", "name: one\ndescription: First.")

    section = skills_section(Skills(tmp_path).enabled())

    assert "- one: First. (/mnt/skills/public/one/SKILL.md)" in section
    assert skills_section(()) == ""
