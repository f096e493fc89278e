"""Twenty skills in the layouts of other public agents load unchanged, with what their keys say."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deerflow.skills import SkillFolders, Skills

PROJECT = "project/.agents/skills"
CLAUDE = "project/.claude/skills"
TEAM = "team"

Layout = tuple[str, str, Mapping[str, str], Mapping[str, Any]]
"""The folder of the package, its front matter, other files, and the fields that it must have."""

LAYOUTS: list[Layout] = [
    # The public format: all six keys, and the folders that it names
    (
        f"{PROJECT}/pdf-tables",
        ("name: pdf-tables\ndescription: Extracts tables from PDF files.\nlicense: Apache-2.0\n"
        "compatibility: Needs Python 3.11 and pdfplumber\nmetadata:\n  author: example-org\n"
        '  version: "1.0"\nallowed-tools: Bash(git:*) Bash(jq:*) Read'),
        {"scripts/extract.py": "print()\n", "references/REFERENCE.md": "# R\n", "assets/t.txt": "x"},
        {"license": "Apache-2.0", "compatibility": "Needs Python 3.11 and pdfplumber", "version": "1.0",
         "author": "example-org", "allowed_tools": ("bash(git:*)", "bash(jq:*)", "read_file")},
    ),
    (f"{PROJECT}/minimal", "name: minimal\ndescription: Does one thing.", {}, {"allowed_tools": None}),
    (
        f"{PROJECT}/folded",
        "name: folded\ndescription: >-\n  Reviews changes.\n  Use it before a merge.",
        {},
        {"description": "Reviews changes. Use it before a merge."},
    ),
    # Keys of coding agents that have commands, models, hooks and forks of their own
    (
        f"{CLAUDE}/commit-helper",
        ("name: commit-helper\ndescription: Writes commit messages.\nallowed-tools: Read, Grep, Glob\n"
        "disable-model-invocation: true\nuser-invocable: false\nargument-hint: '[message]'\nmodel: opus"),
        {},
        {"allowed_tools": ("read_file", "grep", "glob")},
    ),
    (
        f"{CLAUDE}/explore",
        ("name: explore\ndescription: Explores a code base.\ncontext: fork\nagent: Explore\n"
        "hooks:\n  PreToolUse:\n    - matcher: Bash\n      hooks: [{type: command, command: ./x}]"),
        {},
        {},
    ),
    (
        f"{CLAUDE}/when-to-use",
        ("name: when-to-use\ndescription: Deploys.\nwhen_to_use: The user asks for a release\neffort: high\n"
        "paths: ['src/**']\nshell: bash"),
        {},
        {"description": "Deploys."},
    ),
    (
        f"{CLAUDE}/list-of-tools",
        "name: list-of-tools\ndescription: Edits.\nallowed-tools:\n  - Read\n  - Edit\n  - WebFetch",
        {},
        {"allowed_tools": ("read_file", "str_replace", "edit_files", "web_fetch")},
    ),
    (
        f"{CLAUDE}/research-tasks",
        "name: research-tasks\ndescription: Researches.\nallowed-tools: Task WebSearch TodoWrite LS",
        {"templates/report.md": "# T\n"},
        {"allowed_tools": ("task", "web_search", "write_todos", "ls")},
    ),
    # A team's repository: groups of skills, plug-in manifests, READMEs and locks beside them
    (f"{TEAM}/documents/docx", "name: docx\ndescription: Word files.", {"LICENSE.txt": "x"}, {}),
    (f"{TEAM}/documents/office/pptx", "name: pptx\ndescription: Slides.", {"ooxml/a.xsd": "x"}, {}),
    (
        f"{TEAM}/plugins/reviewer",
        "name: reviewer\ndescription: Reviews.\nversion: 2.1",
        {"../../.claude-plugin/marketplace.json": "{}", "../../README.md": "# Team\n"},
        {"version": "2.1"},
    ),
    (f"{TEAM}/with-agents", "name: with-agents\ndescription: A.", {"agents/openai.yaml": "a: 1\n"}, {}),
    (
        f"{TEAM}/with-evals",
        "name: with-evals\ndescription: E.",
        {"evals/evals.json": "[]", "evals/files/SKILL.md": "---\nname: inner\n---\n"},
        {},
    ),
    # Editors and terminals: other keys, short and nested metadata
    (
        f"{PROJECT}/short-description",
        ("name: short-description\ndescription: Plans work.\nmetadata:\n  short-description: Plans\n"
        "  internal: true\n  mcp: [linear]"),
        {},
        {"metadata": {"short-description": "Plans", "internal": "True", "mcp": ""}},
    ),
    (
        f"{PROJECT}/globs",
        ("name: globs\ndescription: Rules for tests.\nglobs: ['**/*.test.ts']\nalwaysApply: false\n"
        "tags: [testing]\ncategory: quality"),
        {},
        {},
    ),
    (
        f"{PROJECT}/bins",
        ('name: bins\ndescription: Uses a program.\nhomepage: https://example.com\nmetadata: {"claw": '
        '{"emoji": "🧾", "requires": {"bins": ["jq"], "env": ["API_KEY"]}}}'),
        {},
        {"metadata": {"claw": ""}},
    ),
    (
        f"{PROJECT}/platforms",
        ("name: platforms\ndescription: Works on Linux.\nplatforms: [linux, macos]\n"
        "prerequisites:\n  commands: [curl]\nauthor: A. Writer\nversion: 1.2.0"),
        {},
        {"version": "1.2.0", "author": "A. Writer"},
    ),
    # DeerFlow 2: public and custom skills with its own keys
    (
        "skills/public/deep-dive",
        "name: deep-dive\ndescription: Researches.\nlicense: MIT\nallowed-tools: [web_search, read_file]",
        {},
        {"category": "public", "allowed_tools": ("web_search", "read_file")},
    ),
    (
        "skills/custom/ticket-writer",
        ("name: ticket-writer\ndescription: Writes tickets.\nauthor: ops\nversion: '3'\n"
        "required-secrets:\n  - TRACKER_TOKEN\n  - {name: TRACKER_URL, optional: true}\n"
        "secrets-autonomous: false\ndependencies: [deep-dive]\nallowed-tools: []"),
        {},
        {"category": "custom", "secrets_autonomous": False, "dependencies": ("deep-dive",),
         "allowed_tools": (), "version": "3"},
    ),
    (
        "skills/custom/报告生成",
        "name: 报告生成\ndescription: 用于: 生成报告、周报",
        {},
        {"description": "用于: 生成报告、周报", "is_editable": True},
    ),
]  # fmt: skip


def write(root: Path, folder: str, matter: str, files: Mapping[str, str]) -> None:
    for name, content in {**files, "SKILL.md": f"---\n{matter}\n---\n\n# Steps\n"}.items():
        path = root / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


@pytest.fixture(scope="module")
def skills(tmp_path_factory: pytest.TempPathFactory) -> Skills:
    root = tmp_path_factory.mktemp("layouts")
    for folder, matter, files, _ in LAYOUTS:
        write(root, folder, matter, files)
    (root / "project" / "skills-lock.json").write_text("{}")
    return Skills(SkillFolders(root / "skills", paths=(root / TEAM,), projects=(root / "project",)))


def test_all_twenty_load(skills: Skills) -> None:
    assert len(LAYOUTS) == 20
    assert {skill.name for skill in skills.all()} == {folder.rpartition("/")[2] for folder, *_ in LAYOUTS}
    # The one warning: a Chinese description with an unquoted colon, which is read all the same.
    assert [problem.line for problem in skills.problems()] == [3]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout[0])
def test_a_skill_says_what_its_keys_say(skills: Skills, layout: Layout) -> None:
    folder, _, _, fields = layout

    skill = next(each for each in skills.all() if each.name == folder.rpartition("/")[2])

    assert {name: getattr(skill, name) for name in fields} == fields


def test_a_skill_names_the_secrets_that_it_needs(skills: Skills) -> None:
    skill = next(each for each in skills.all() if each.name == "ticket-writer")

    assert [(secret.name, secret.is_optional) for secret in skill.required_secrets] == [
        ("TRACKER_TOKEN", False),
        ("TRACKER_URL", True),
    ]
