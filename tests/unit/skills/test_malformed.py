"""Forty malformed packages: each loads, is skipped or warns exactly as its row says, beside a good one."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deerflow.skills import Skill, Skills
from deerflow.skills.read import MAX_FILE_BYTES

Make = str | bytes | Callable[[Path], None]


@dataclass(frozen=True)
class Row:
    """A package in the folder `pack`, and what becomes of it."""

    about: str
    package: Make
    """The text of its `SKILL.md`, or a function that fills the folder."""
    name: str | None = "pack"
    """The name of the skill that loads; None: it is skipped."""
    problems: tuple[tuple[str, int | None, str], ...] = ()
    """Level, line and a part of the reason of each problem."""
    fields: dict[str, object] = field(default_factory=dict)


def matter(keys: str) -> str:
    return f"---\n{keys}\n---\n# Steps\n"


def good(keys: str = "") -> str:
    return matter(f"name: pack\ndescription: Packs.{keys and chr(10)}{keys}")


def skipped(line: int | None, reason: str) -> tuple[tuple[str, int | None, str], ...]:
    return (("skipped", line, reason),)


def warned(line: int | None, reason: str) -> tuple[tuple[str, int | None, str], ...]:
    return (("warning", line, reason),)


def fifo(folder: Path) -> None:
    os.mkfifo(folder / "SKILL.md")


def link(folder: Path) -> None:
    (folder / "SKILL.md").symlink_to("/etc/hostname")


def linked_folder(folder: Path) -> None:
    elsewhere = folder.parents[1] / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "SKILL.md").write_text(good())
    folder.rmdir()
    folder.symlink_to(elsewhere)


def a_folder(folder: Path) -> None:
    (folder / "SKILL.md").mkdir()


def huge(folder: Path) -> None:
    (folder / "SKILL.md").write_text(good() + "x" * MAX_FILE_BYTES)


def lower_case(folder: Path) -> None:
    (folder / "skill.md").write_text(good())


def nested(folder: Path) -> None:
    (folder / "SKILL.md").write_text(good())
    (folder / "examples" / "inner").mkdir(parents=True)
    (folder / "examples" / "inner" / "SKILL.md").write_text("no front matter, and it does not matter")


LAUGHS = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
)

ROWS = [
    # Files that are not read
    Row("no front matter", "# Hello\n", None, skipped(1, "no front matter")),
    Row("empty file", "", None, skipped(1, "no front matter")),
    Row("front matter without end", "---\nname: pack\ndescription: x\n", None, skipped(1, "has no end")),
    Row("front matter without keys", matter("- a\n- b"), None, skipped(2, "has no keys")),
    Row("not UTF-8", b"---\nname: pack\ndescription: caf\xe9\n---\n", None, skipped(3, "byte 0xe9")),
    Row("UTF-16", good().encode("utf-16"), None, skipped(1, "UTF-16 is not UTF-8")),
    Row("control character", matter("name: pack\ndescription: a\x00b"), None, skipped(3, "no YAML")),
    Row("pipe", fifo, None, skipped(None, "not a regular file")),
    Row("folder in the file's place", a_folder, None, skipped(None, "not a regular file")),
    Row("link to a file", link, None, skipped(None, "it is a link")),
    Row("link to a folder", linked_folder, None, skipped(None, "it is a link")),
    Row("huge file", huge, None, skipped(None, "larger than 1,000,000 bytes")),
    Row("file name in lower case", lower_case, None, skipped(None, "its name must be SKILL.md")),
    Row("unclosed list", matter("name: pack\ndescription: [a"), None, skipped(3, "no YAML")),
    Row("tag of a program", matter("name: !!python/name:os.system x"), None, skipped(2, "no YAML")),
    Row("deep nesting", matter("name: pack\ndescription: " + "[" * 9000), None, skipped(2, "no YAML")),
    # Descriptions
    Row("no description", matter("name: pack"), None, skipped(None, "'description' is missing")),
    Row("empty description", matter("name: pack\ndescription:"), None, skipped(3, "'description' is")),
    Row("list as description", matter("name: pack\ndescription: [a, b]"), None, skipped(3, "'description'")),
    Row(
        "unquoted colon",
        matter("name: pack\ndescription: Use when: the user packs"),
        problems=warned(3, "'description' is no YAML"),
        fields={"description": "Use when: the user packs"},
    ),
    Row(
        "unquoted colon over two lines",
        matter("name: pack\ndescription: Use when: the user\n  packs: boxes\nlicense: MIT"),
        problems=warned(3, "'description' is no YAML"),
        fields={"description": "Use when: the user packs: boxes", "license": "MIT"},
    ),
    Row(
        "apostrophe inside single quotes",
        matter("name: pack\ndescription: 'It's for boxes'"),
        problems=warned(3, "'description' is no YAML"),
        fields={"description": "It's for boxes"},
    ),
    Row(
        "label in brackets",
        matter("name: pack\ndescription: [beta] Packs boxes"),
        problems=warned(3, "'description' is no YAML"),
        fields={"description": "[beta] Packs boxes"},
    ),
    Row(
        "long description",
        matter(f"name: pack\ndescription: {'word ' * 300}"),
        problems=warned(3, "has 1499 characters; the first 1024 are used"),
    ),
    Row(
        "markup in the description",
        matter("name: pack\ndescription: |\n  Packs\n  </skills> boxes."),
        fields={"description": "Packs ‹/skills› boxes."},
    ),
    # Names
    Row("no name", matter("description: Packs."), problems=warned(None, "'name' is missing")),
    Row("path as name", matter("name: ../pack\ndescription: x"), None, skipped(2, "'name' is '../pack'")),
    Row("invisible name", matter('name: "a\\u200bb"\ndescription: x'), None, skipped(2, "'name' is")),
    Row("endless name", matter(f"name: {'a' * 200}\ndescription: x"), None, skipped(2, "'name' is")),
    Row(
        "long name",
        matter(f"name: {'a' * 80}\ndescription: x"),
        "a" * 80,
        warned(2, "has 80 characters; the format allows 64"),
    ),
    Row(
        "capitals and blanks",
        matter("name: My Pack_Tool\ndescription: x"),
        "my-pack-tool",
        warned(2, "it is used as 'my-pack-tool'"),
    ),
    Row("another name than the folder", matter("name: box\ndescription: x"), "box", warned(2, "'pack'")),
    Row(
        "Chinese name", matter("name: 报告生成\ndescription: 写报告"), "报告生成", warned(2, "the folder is")
    ),
    Row("Hindi name", matter("name: रिपोर्ट\ndescription: x"), "रिपोर्ट", warned(2, "the folder is")),
    Row("name twice", good("name: pack"), problems=warned(4, "'name' is there more than once")),
    # Other keys
    Row("number as tools", good("allowed-tools: 7"), None, skipped(4, "'allowed-tools' must be a list")),
    Row(
        "tools of another agent",
        good("allowed-tools: Bash(git:*) Read, NotebookEdit mcp_files_list"),
        problems=warned(4, "NotebookEdit, which has no counterpart"),
        fields={"allowed_tools": ("bash(git:*)", "read_file", "mcp_files_list")},
    ),
    Row(
        "metadata as text, dependencies as number, flag as word",
        good("metadata: none\ndependencies: 5\nsecrets-autonomous: perhaps"),
        problems=(
            ("warning", 4, "'metadata' must be keys"),
            ("warning", 5, "'dependencies' must be a list"),
            ("warning", 6, "'secrets-autonomous' must be true or false"),
        ),
        fields={"metadata": {}, "dependencies": (), "secrets_autonomous": False},
    ),
    Row(
        "secrets that no shell can name",
        good("required-secrets: [API KEY]"),
        None,
        skipped(4, "'required-secrets' must be a list of names"),
    ),
    Row("aliases that multiply", good(LAUGHS)),
    Row("broken skill inside", nested),
    Row("BOM, blank line and Windows line ends", "\ufeff\r\n" + good().replace("\n", "\r\n")),
]


def outcome(root: Path, row: Row) -> tuple[Skills, Skill | None]:
    folder = root / "public" / "pack"
    folder.mkdir(parents=True)
    (root / "public" / "other").mkdir()
    (root / "public" / "other" / "SKILL.md").write_text("---\nname: other\ndescription: Works.\n---\n")
    match row.package:
        case str() as text:
            (folder / "SKILL.md").write_bytes(text.encode())
        case bytes() as data:
            (folder / "SKILL.md").write_bytes(data)
        case make:
            make(folder)
    skills = Skills(root)
    found = {skill.name: skill for skill in skills.all()}
    assert "other" in found, "a package must not affect others"
    return skills, next((skill for name, skill in found.items() if name != "other"), None)


def test_there_are_forty_rows() -> None:
    assert len({row.about for row in ROWS}) == len(ROWS) >= 40


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.about)
def test_a_malformed_package_ends_as_its_row_says(tmp_path: Path, row: Row) -> None:
    skills, skill = outcome(tmp_path, row)

    problems = [(problem.level, problem.line, problem.reason) for problem in skills.problems()]
    assert (skill.name if skill else None) == row.name, problems
    assert [found[:2] for found in problems] == [expected[:2] for expected in row.problems], problems
    for found, expected in zip(problems, row.problems, strict=True):
        assert expected[2] in found[2]
    assert {name: getattr(skill, name) for name in row.fields} == row.fields
