"""Checks a skill before it is shared: the format, the scan, its size and the files that it names."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deerflow.errors import DeerFlowError
from deerflow.skills.package_files import package_files
from deerflow.skills.read import read_skill
from deerflow.skills.scan import scan
from deerflow.skills.skill import SKILL_FILE

MAX_LINES = 500
"""The whole `SKILL.md` is read when a skill is used; more belongs into references."""
_LINK = re.compile(r"\]\(([^)\s#:]+)\)")
_NAMED = re.compile(r"(?<![\w/.-])((?:references|scripts|assets|templates)/[\w./-]+\.\w+)")


@dataclass(frozen=True, slots=True)
class ValidationProblem:
    """What is wrong with a package."""

    level: Literal["error", "warning"]
    file: str
    line: int | None
    text: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{self.level}  {where}  {self.text}"


def validate_package(folder: Path) -> list[ValidationProblem]:
    """Return what is wrong with the skill in a folder, errors first."""
    try:
        package_files(folder)
        skill = read_skill(folder / SKILL_FILE, category="custom", path=SKILL_FILE)
    except FileNotFoundError:
        return [ValidationProblem("error", SKILL_FILE, None, f"{folder} has no {SKILL_FILE}")]
    except (OSError, ValueError, DeerFlowError) as error:
        return [ValidationProblem("error", SKILL_FILE, getattr(error, "line", None), str(error))]
    found = [
        ValidationProblem("warning", SKILL_FILE, problem.line, problem.reason) for problem in skill.warnings
    ]
    found += [
        ValidationProblem(
            "error" if finding.level == "block" else "warning",
            finding.file,
            finding.line,
            f"[{finding.rule_id}] {finding.text}",
        )
        for finding in scan(folder)
    ]
    found += _about_text(folder, skill.file.read_text(encoding="utf-8"))
    return sorted(found, key=lambda problem: problem.level)


def _about_text(folder: Path, text: str) -> list[ValidationProblem]:
    lines = text.splitlines()
    found = []
    if len(lines) > MAX_LINES:
        said = f"it has {len(lines)} lines; keep it under {MAX_LINES} and move the rest to references/"
        found.append(ValidationProblem("warning", SKILL_FILE, None, said))
    for number, line in enumerate(lines, start=1):
        for name in dict.fromkeys((*_LINK.findall(line), *_NAMED.findall(line))):
            if not name.startswith("/") and not (folder / name).exists():
                said = f"it names '{name[:200]}', which is not in the package"
                found.append(ValidationProblem("warning", SKILL_FILE, number, said))
    return found
