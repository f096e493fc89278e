"""Every shipped skill is a valid package: front matter, named files, evals, scripts with help."""

import ast
import json
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml
from skills_ref.validator import validate

from deerflow.skills import Skills
from deerflow.skills.scan import blocking, scan

ROOT = Path(__file__).parents[2]
PUBLIC = ROOT / "skills" / "public"
SKILLS = sorted(file.parent.name for file in PUBLIC.glob("*/SKILL.md"))
SCRIPTS = sorted(
    f"{file.parents[1].name}/{file.name}"
    for file in PUBLIC.glob("*/scripts/*.py")
    if not file.name.startswith("_")
)
FORMAT_KEYS = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
MODULES = {  # distribution → module, where the names differ
    "markdown-it-py": "markdown_it",
    "pillow": "PIL",
    "python-docx": "docx",
    "python-pptx": "pptx",
}
NAMED_FILE = re.compile(r"(?<![\w/.-])(?:references|scripts|templates|assets)/[\w./-]*\w\.\w+")


def _parts(skill: str) -> tuple[dict[str, Any], str]:
    text = (PUBLIC / skill / "SKILL.md").read_text(encoding="utf-8")
    _, matter, body = text.split("---\n", 2)
    return yaml.safe_load(matter), body


def _requirements(file: Path) -> dict[str, str]:
    lines = [line.strip() for line in file.read_text().splitlines()]
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_there_are_skills() -> None:
    assert len(SKILLS) == 18


def test_the_data_of_the_search_benchmark_hold_the_shipped_descriptions() -> None:
    data = json.loads((ROOT / "benchmarks" / "data" / "find_skill.json").read_text(encoding="utf-8"))
    described = {skill["name"]: skill["description"] for skill in data["skills"]}
    needs = {need["text"]: need["skill"] for need in data["needs"]}

    assert {skill: _parts(skill)[0]["description"] for skill in SKILLS}.items() <= described.items()
    assert (len(data["skills"]), len(described)) == (200, 200)
    assert (len(needs), sum(bool(re.search(r"[\u4e00-\u9fff]", text)) for text in needs)) == (100, 50)
    assert set(needs.values()) <= set(described)


def test_the_loader_and_the_scan_of_installed_skills_accept_all() -> None:
    skills = Skills(ROOT / "skills")
    found = [skill for skill in skills.all() if skill.category == "public"]

    assert [skill.name for skill in found] == SKILLS
    assert [problem for problem in skills.problems() if problem.file.is_relative_to(PUBLIC)] == []
    assert [finding for skill in found for finding in blocking(scan(skill.folder))] == []


@pytest.mark.parametrize("skill", SKILLS)
def test_the_public_validator_accepts_it(skill: str) -> None:
    assert validate(PUBLIC / skill) == []


@pytest.mark.parametrize("skill", SKILLS)
def test_front_matter_and_body_keep_the_format(skill: str) -> None:
    matter, body = _parts(skill)

    assert set(matter) <= FORMAT_KEYS
    assert matter["name"] == skill
    assert matter["license"] == "MIT"
    assert matter["metadata"] == {"version": "1.0"}
    assert len(matter["description"]) <= 1024
    assert re.search(r"[\u4e00-\u9fff]", matter["description"]), "the description has no Chinese words"
    assert len(body.splitlines()) < 500


@pytest.mark.parametrize("skill", SKILLS)
def test_files_and_text_name_each_other(skill: str) -> None:
    folder = PUBLIC / skill
    _, body = _parts(skill)
    # A path below another skill's folder is that skill's.
    named = {
        path
        for path in NAMED_FILE.findall(body.replace(f"/mnt/skills/public/{skill}/", " "))
        if not path.startswith("/")
    }
    absolute = re.findall(r"/mnt/skills/public/([\w-]+/[\w./-]*\w\.\w+)", body)

    assert [path for path in sorted(named) if not (folder / path).is_file()] == []
    assert [path for path in absolute if not (PUBLIC / path).is_file()] == []
    shipped = [*folder.glob("references/*.md"), *folder.glob("scripts/[!_]*.py")]
    assert [file.name for file in shipped if file.name not in body] == [], "not named in SKILL.md"


@pytest.mark.parametrize("skill", SKILLS)
def test_evals_have_cases_with_files_and_triggers(skill: str) -> None:
    folder = PUBLIC / skill / "evals"
    evals = json.loads((folder / "evals.json").read_text(encoding="utf-8"))

    assert evals["skill_name"] == skill
    assert len(evals["evals"]) >= 3
    assert len({case["id"] for case in evals["evals"]}) == len(evals["evals"])
    for case in evals["evals"]:
        assert set(case) == {"id", "prompt", "expected_output", "files", "assertions"}
        assert case["prompt"].strip()
        assert case["expected_output"].strip()
        assert case["assertions"]
        assert all(isinstance(line, str) and line.strip() for line in case["assertions"])
        assert [name for name in case["files"] if not (folder / name).is_file()] == []
    for queries in (evals["triggers"]["should"], evals["triggers"]["should_not"]):
        assert len(set(queries)) == len(queries) >= 10
        assert any(re.search(r"[\u4e00-\u9fff]", query) for query in queries)
    assert not set(evals["triggers"]["should"]) & set(evals["triggers"]["should_not"])


def test_every_requirement_of_a_skill_is_locked_for_the_tests() -> None:
    wanted = _requirements(ROOT / "requirements" / "skills.in")
    lock = (ROOT / "requirements" / "skills.lock").read_text()

    assert "://" not in lock
    assert [name for name, version in wanted.items() if f"\n{name}=={version} \\" not in f"\n{lock}"] == []
    for file in PUBLIC.glob("*/requirements.txt"):
        own = _requirements(file)
        assert own.items() <= wanted.items(), file


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_imports_only_the_standard_library_and_its_requirements(script: str) -> None:
    folder = PUBLIC / script.split("/")[0]
    named = folder / "requirements.txt"
    required = _requirements(named) if named.exists() else {}
    allowed = {MODULES.get(name, name) for name in required} | {
        file.stem for file in folder.glob("scripts/*.py")
    }
    used = {
        name.split(".")[0]
        for node in ast.walk(ast.parse((folder / "scripts" / script.split("/")[1]).read_text()))
        for name in _imported(node)
    }
    assert used - allowed - sys.stdlib_module_names == set()


def _imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module]
        case _:
            return []


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_explains_itself_and_names_a_missing_package(script: str, run_script: Any) -> None:
    skill, name = script.split("/")
    source = (PUBLIC / skill / "scripts" / name).read_text()
    shown = run_script(skill, name, "--help")
    assert shown.startswith("usage:")
    assert len(shown.splitlines()) > 4

    requirements = PUBLIC / skill / "requirements.txt"
    for package in _requirements(requirements) if requirements.exists() else ():
        module = MODULES.get(package, package)
        if re.search(rf"^(?:    )?(?:from|import) {module}\b", source, re.MULTILINE):
            said = run_script(skill, name, "--help", code=2, without=module)
            assert package in said
            assert f"{skill}/requirements.txt" in said
            assert "network" in said


@pytest.mark.parametrize("skill", sorted(file.parent.name for file in PUBLIC.glob("*/requirements.txt")))
def test_packages_that_an_operator_installed_beside_the_skills_are_found(skill: str, tmp_path: Path) -> None:
    folder = tmp_path / "public" / skill
    shutil.copytree(PUBLIC / skill, folder)
    needy = next(
        file for file in sorted(folder.glob("scripts/[!_]*.py")) if "stop_missing" in _with_helpers(file)
    )
    # -S: a Python without installed packages, as that of a sandbox.
    command = [sys.executable, "-S", str(needy), "--help"]

    before = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    (tmp_path / "public" / ".packages").symlink_to(sysconfig.get_path("purelib"))
    after = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert (before.returncode, "make skills" in before.stderr) == (2, True)
    assert (after.returncode, after.stdout[:6]) == (0, "usage:"), after.stderr


def _with_helpers(script: Path) -> str:
    """Return the source of a script and of the modules beside it that it imports."""
    source = script.read_text()
    used = re.findall(r"^from (_\w+) import", source, re.MULTILINE)
    return source + "".join((script.parent / f"{name}.py").read_text() for name in used if name != "_common")
