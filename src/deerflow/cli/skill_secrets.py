"""`deerflow skills secrets`: sets, lists and removes secrets of skills, with or without a running server."""

import sys
from getpass import getpass
from pathlib import Path
from typing import Literal

import orjson

from deerflow.config import SettingsSource
from deerflow.domain import DEFAULT_USER
from deerflow.errors import NotFoundError
from deerflow.skills import Skill, skills_of
from deerflow.skills.secrets import SkillSecrets, secrets_out


def execute(
    *,
    action: Literal["list", "set", "remove"],
    skill: str,
    config: Path | None,
    secret: str | None = None,
    as_json: bool = False,
) -> int:
    """Execute the action on the secrets in the home folder of these settings."""
    loaded = SettingsSource(config).current()
    skills = skills_of(loaded, loaded.paths)
    found = {each.name: each for each in skills.all()}
    if skill not in found:
        raise NotFoundError("skill", skill[:80], known=found)
    secrets = SkillSecrets(loaded.paths.home)
    if action == "set":
        secrets.put(DEFAULT_USER, found[skill], {secret or "": _value(secret or "")})
    elif action == "remove" and not secrets.remove(DEFAULT_USER, skill, secret) and secret is not None:
        raise NotFoundError(f"secret of skill '{skill}'", secret[:80])
    _show(found[skill], secrets, as_json=as_json)
    return 0


def _value(name: str) -> str:
    """Return the value from the keyboard, where it is not shown, or from a pipe."""
    # Not from the command line: other programs and the shell's history can read that.
    return getpass(f"Value of {name}: ") if sys.stdin.isatty() else sys.stdin.read().removesuffix("\n")


def _show(skill: Skill, secrets: SkillSecrets, *, as_json: bool) -> None:
    known = secrets_out(skill, secrets.names(DEFAULT_USER, skill.name))
    if as_json:
        print(orjson.dumps({"skill": skill.name, "secrets": known}, option=orjson.OPT_INDENT_2).decode())
    elif not known:
        print(f"The skill {skill.name} needs no secrets.")
    for one in known if not as_json else ():
        needed = " (optional)" if one["optional"] else ""
        print(f"{one['name']}: {'set' if one['set'] else 'not set'}{needed}")
