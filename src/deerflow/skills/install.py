"""Installs skills from archives."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO

from deerflow.errors import ConflictError, InvalidInputError
from deerflow.skills.archive import unpack
from deerflow.skills.loader import Skills
from deerflow.skills.read import read_skill
from deerflow.skills.skill import SKILL_FILE, Skill


def install_skill(file: BinaryIO, root: Path) -> Skill:
    """Unpack an archive to `root/custom/{name}` atomically, and return the skill."""
    custom = root / "custom"
    custom.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".install-", dir=custom))  # dot folders are not scanned
    try:
        unpack(file, draft / "skill")
        skill = _read(draft / "skill" / SKILL_FILE)
        _refuse_known(skill.name, root)
        target = custom / skill.name
        try:
            (draft / "skill").rename(target)
        except OSError as error:  # it was created concurrently
            raise ConflictError(
                f"the skill '{skill.name}' is there already; remove {target} first"
            ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return _read(target / SKILL_FILE)


def _read(file: Path) -> Skill:
    try:
        return read_skill(file, category="custom", path=str(file))
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"the archive's {SKILL_FILE} cannot be used: {error}") from error


def _refuse_known(name: str, root: Path) -> None:
    known = next((skill for skill in Skills(root).all() if skill.name == name), None)
    if known is not None:
        raise ConflictError(
            f"there is a {known.category} skill '{name}' already; remove it or rename this one"
        )
    if os.path.lexists(root / "custom" / name):
        raise ConflictError(f"the folder {root / 'custom' / name} is there already; remove it first")
