"""Skills are found on disk, and a broken one harms nobody."""

import logging
import os
import shutil
from pathlib import Path

import pytest

from deerflow.agents.prompts import skills_section
from deerflow.skills import SkillFolders, Skills, package_digest
from deerflow.skills.loader import FEW_FOLDERS


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
        ("name: ../up\ndescription: x", "'name' is '../up'; use letters"),
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


def test_a_name_that_can_be_used_is_used_with_a_warning(tmp_path: Path) -> None:
    write(tmp_path, "public/no-name", "description: No name.")
    write(tmp_path, "public/bad", "name: Bad_Name\ndescription: x")
    skills = Skills(tmp_path)

    assert [skill.name for skill in skills.all()] == ["bad-name", "no-name"]
    assert [(problem.line, problem.level) for problem in skills.problems()] == [
        (2, "warning"),
        (None, "warning"),
    ]


def test_each_user_has_custom_skills_and_the_nearer_source_wins(tmp_path: Path) -> None:
    folders = SkillFolders(
        tmp_path / "skills",
        users=lambda user: tmp_path / "users" / user / "skills" / "custom",
        paths=(tmp_path / "team", tmp_path / "other" / "team"),
        projects=(tmp_path / "project",),
    )
    sources = (
        *("project/.agents/skills", "project/.claude/skills", "users/ann/skills/custom"),
        *("team", "other/team", "skills/public"),
    )
    for number, folder in enumerate(sources):
        for name in (f"s{each}" for each in range(number + 1)):
            write(tmp_path, f"{folder}/{name}", f"name: {name}\ndescription: From {folder}.")
    write(tmp_path, "skills/custom/mine", "name: mine\ndescription: The default user's.")

    skills = Skills(folders)
    found = skills.all(user="ann")

    assert [(skill.path.removesuffix(f"/{skill.name}/SKILL.md"), skill.source) for skill in found] == [
        ("/mnt/skills/projects/project/agents", ".agents/skills"),
        ("/mnt/skills/projects/project/claude", ".claude/skills"),
        ("/mnt/skills/custom", "custom"),
        ("/mnt/skills/paths/team", "skills.paths[0]"),
        ("/mnt/skills/paths/team-2", "skills.paths[1]"),
        ("/mnt/skills/public", "public"),
    ]
    assert [skill.name for skill in found] == ["s0", "s1", "s2", "s3", "s4", "s5"]
    assert [skill.is_editable for skill in found] == [False, False, True, False, False, False]
    shadowed = [problem for problem in skills.problems(user="ann") if problem.level == "shadowed"]
    assert len(shadowed) == 5 + 4 + 3 + 2 + 1
    assert shadowed[-1].reason.startswith("the skill 's4' of skills.paths[1] is used instead")
    assert [skill.name for skill in skills.all() if skill.category == "custom"] == ["mine"]


def test_the_digest_of_a_package_covers_names_contents_and_execute_bits(tmp_path: Path) -> None:
    file = write(tmp_path, "one", "name: one\ndescription: First.")
    script = tmp_path / "one" / "scripts" / "run.sh"
    script.parent.mkdir()
    script.write_text("true\n")
    copy = Path(shutil.copytree(tmp_path / "one", tmp_path / "two"))
    for folder in (tmp_path / "one", copy):
        os.mkfifo(folder / "pipe")
    digests = [package_digest(tmp_path / "one"), package_digest(copy)]

    script.chmod(0o755)
    digests.append(package_digest(tmp_path / "one"))
    script.rename(script.with_name("go.sh"))
    digests.append(package_digest(tmp_path / "one"))
    file.write_text("other")
    digests.append(package_digest(tmp_path / "one"))

    assert digests[0] == digests[1]
    assert len(set(digests)) == 4


def test_a_skill_that_is_taken_away_while_we_look_harms_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "public/good", "name: good\ndescription: Works.")
    gone = write(tmp_path, "public/gone", "name: gone\ndescription: Was there.")
    lstat = os.lstat

    def look(path: str) -> os.stat_result:
        found = lstat(path)
        if path == str(gone):
            gone.unlink()
        return found

    monkeypatch.setattr(os, "lstat", look)

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


def test_a_change_of_few_files_is_noticed_without_reading_them(tmp_path: Path) -> None:
    skills = Skills(tmp_path)
    file = write(tmp_path, "public/one", "name: one\ndescription: Does it.")
    before = skills.is_unchanged()
    skills.rescan()

    assert not before  # nothing was scanned yet
    assert skills.is_unchanged()
    file.write_text(file.read_text() + "More.\n")
    assert not skills.is_unchanged()
    skills.rescan()
    shutil.rmtree(file.parent)
    assert not skills.is_unchanged()
    for number in range(FEW_FOLDERS + 1):
        write(tmp_path, f"public/skill-{number}", f"name: skill-{number}\ndescription: Does it.")
    skills.rescan()
    assert len(skills.all()) == FEW_FOLDERS + 1
    assert not skills.is_unchanged()  # so many are looked at in a thread


def test_the_prompt_lists_name_description_and_path(tmp_path: Path) -> None:
    write(tmp_path, "public/one", "name: one\ndescription: First.")

    section = skills_section(Skills(tmp_path).enabled())

    assert "- one [built-in]: First. (/mnt/skills/public/one/SKILL.md)" in section
    assert skills_section(()) == ""
