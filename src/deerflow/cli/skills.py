"""`deerflow skills`: lists, installs, shares and restores skills, on the files or on a running server."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from deerflow.cli.skills_access import InstallRequest, LocalSkills, SkillsAccess, opened_skills
from deerflow.domain.visible_text import printable
from deerflow.errors import ConflictError, InvalidInputError
from deerflow.skills import SKILL_FILE, SKILL_SUFFIX, FileContent, SkillChange
from deerflow.skills.install import RESERVED_NAMES, OnConflict
from deerflow.skills.read import usable_name
from deerflow.skills.validate import ValidationProblem, validate_package

_ARCHIVES = (SKILL_SUFFIX, ".zip", ".tar.gz", ".tgz")
_SHOWN_CHARS = 90
_TEMPLATE = """---
name: {name}
description: {description}
---

# {title}

## When to use it

## Steps

1.
"""


def execute(*, action: str, config: Path | None, as_json: bool = False, **arguments: Any) -> int:
    """Execute one of the commands; each is a function of this module."""
    command = _COMMANDS.get(action)
    if command is not None:
        return command(config=config, as_json=as_json, **arguments)
    return asyncio.run(_on_skills(action, config, as_json, **arguments))


async def _on_skills(
    action: str, config: Path | None, as_json: bool, *, url: str | None = None, **arguments: Any
) -> int:
    async with opened_skills(config, url) as skills:
        result: int = await _ACTIONS[action](skills, as_json=as_json, **arguments)
        return result


async def _list(skills: SkillsAccess, *, as_json: bool) -> int:
    found = await skills.listed()
    if as_json:
        return _print_json(found)
    if not found["skills"]:
        print("No skills. `deerflow skills search` finds some; `deerflow skills new NAME` makes one.")
    table = Table("name", "state", "from", "description", box=None, pad_edge=False)
    for skill in found["skills"]:
        state = "on" if skill["enabled"] else "off"
        table.add_row(*map(printable, (skill["name"], state, skill["source"], _cut(skill["description"]))))
    if found["skills"]:
        _console().print(table)
    for problem in found["problems"]:
        line = "" if problem["line"] is None else f":{problem['line']}"
        _say(f"{problem['level']}  {problem['path']}{line}  {problem['reason']}")
    return 0


async def _show(skills: SkillsAccess, *, as_json: bool, name: str) -> int:
    found = await skills.shown(name)
    if as_json:
        return _print_json(found)
    for key, value in found.items():
        if key not in ("content", "files", "warnings", "metadata") and value not in (None, [], {}, ""):
            _say(f"{key:18} {', '.join(map(str, value)) if isinstance(value, list) else value}")
    for file in found.get("files", ()):
        _say(f"{'file':18} {file['path']}" + (f"  {file['size']:,} bytes" if "size" in file else ""))
    if "content" in found:
        _say(f"\n{found['content']}")
    return 0


async def _install(
    skills: SkillsAccess,
    *,
    as_json: bool,
    source: str,
    catalogue: str | None,
    digest: str | None,
    is_update: bool,
    on_conflict: OnConflict,
) -> int:
    path = _local_source(source, catalogue)
    request = InstallRequest(
        path=path,
        name="" if path is not None else source,
        catalogue=catalogue,
        digest=digest,
        is_update=is_update,
        on_conflict=on_conflict,
    )
    done = await skills.install(request)
    if as_json:
        return _print_json(done)
    _say(f"{done['message']}.")
    for path_ in done["replaced"]:
        _say(f"replaced  {path_}")
    for finding in done["findings"]:
        line = "" if finding["line"] is None else f":{finding['line']}"
        _say(f"warning  {finding['file']}{line}  [{finding['rule_id']}] {finding['text']}")
    return 0


def _local_source(source: str, catalogue: str | None) -> Path | None:
    """Return the folder or archive that is meant; None for a name in a catalogue."""
    if "://" in source:
        raise InvalidInputError(
            f"'{source[:200]}' is not fetched: name its catalogue in skills.catalogues of config.yaml, or "
            "download the archive yourself"
        )
    path = Path(source).expanduser()
    if catalogue is None and (path.exists() or "/" in source or source.endswith(_ARCHIVES)):
        return path
    return None


async def _remove(skills: SkillsAccess, *, as_json: bool, name: str, is_sure: bool) -> int:
    if not is_sure and (await skills.shown(name))["editable"]:  # else the removal says why it is refused
        typer.confirm(f"Remove the skill {printable(name)}?", abort=True)
    await skills.remove(name)
    if as_json:
        return _print_json({"success": True, "skill_name": name})
    _say(f"Skill '{name}' is removed. Its versions are kept: deerflow skills rollback {name}")
    return 0


async def _enable(skills: SkillsAccess, *, as_json: bool, name: str, is_enabled: bool) -> int:
    found = await skills.enable(name, is_enabled=is_enabled)
    if as_json:
        return _print_json(found)
    _say(f"Skill '{name}' is {'on' if is_enabled else 'off'} for runs that start from now on.")
    return 0


async def _export(skills: SkillsAccess, *, as_json: bool, name: str, output: Path | None) -> int:
    data = await skills.export(name)
    target = output or Path(f"{name}{SKILL_SUFFIX}")
    target = target / f"{name}{SKILL_SUFFIX}" if target.is_dir() else target
    try:
        target.write_bytes(data)
    except OSError as error:
        raise InvalidInputError(f"'{target}' cannot be written: {error.strerror}") from error
    if as_json:
        return _print_json({"skill_name": name, "file": str(target), "bytes": len(data)})
    _say(f"Wrote {target} ({len(data):,} bytes).")
    return 0


async def _search(skills: SkillsAccess, *, as_json: bool, query: str, limit: int) -> int:
    found = await skills.search(query, limit)
    if as_json:
        return _print_json(found)
    if not found["catalogues"]:
        print("No catalogues: name folders, git URLs or sites in skills.catalogues of config.yaml.")
    elif not found["skills"]:
        print("Nothing found.")
    else:
        table = Table("name", "installed", "catalogue", "description", box=None, pad_edge=False)
        for each in found["skills"]:
            is_there = "yes" if each["installed"] else ""
            words = (each["name"], is_there, each["catalogue"], _cut(each["description"]))
            table.add_row(*map(printable, words))
        _console().print(table)
    for problem in found["problems"]:
        _say(f"problem  {problem['catalogue']}  {problem['reason']}")
    return 0


async def _history(skills: SkillsAccess, *, as_json: bool, name: str) -> int:
    versions = await skills.history(name)
    if as_json:
        return _print_json({"history": versions})
    if not versions:
        print("No versions yet: the files were put into the folder by other means.")
        return 0
    table = Table("version", "time", "what", "by", "why", box=None, pad_edge=False)
    for each in versions:
        words = (str(each["version"]), each["time"][:19], each["action"], each["author"], each["reason"])
        table.add_row(*map(printable, words))
    _console().print(table)
    return 0


async def _rollback(skills: SkillsAccess, *, as_json: bool, name: str, version: int | None) -> int:
    await skills.rollback(name, version)
    newest = (await skills.history(name))[-1]
    if as_json:
        return _print_json(newest)
    _say(f"Skill '{name}' is restored: {newest['reason']}. It is version {newest['version']}.")
    return 0


async def _diff(skills: SkillsAccess, *, as_json: bool, name: str, old: int | None, new: int | None) -> int:
    diff = await skills.diff(name, old, new)
    if as_json:
        return _print_json({"diff": diff})
    _say(diff.rstrip("\n") or "No differences.")
    return 0


async def _draft(skills: SkillsAccess, *, as_json: bool, name: str) -> int:
    diff = await skills.draft_diff(name)
    if as_json:
        return _print_json({"skill_name": name, "diff": diff})
    _say(diff.rstrip("\n") or "No differences.")
    return 0


async def _promote(skills: SkillsAccess, *, as_json: bool, name: str) -> int:
    await skills.promote(name)
    if as_json:
        return _print_json({"success": True, "skill_name": name})
    _say(f"The draft of '{name}' is used from the next turn on. Undo it: deerflow skills rollback {name}")
    return 0


async def _discard(skills: SkillsAccess, *, as_json: bool, name: str) -> int:
    await skills.discard(name)
    if as_json:
        return _print_json({"success": True, "skill_name": name})
    _say(f"The draft of '{name}' is discarded.")
    return 0


def new(*, config: Path | None, as_json: bool, name: str, description: str) -> int:
    """Make a custom skill from a template."""
    library = LocalSkills(config).library
    if usable_name(name) != name or name in RESERVED_NAMES:
        raise InvalidInputError(
            f"'{name[:80]}' cannot be the name of a skill; use lower-case letters, digits and single hyphens"
        )
    if any(skill.name == name for skill in library.all()):
        raise ConflictError(f"there is a skill '{name}' already; choose another name")
    matter = orjson.dumps(description or "What it does, and when to use it.").decode()
    text = _TEMPLATE.format(name=name, description=matter, title=name.replace("-", " ").capitalize())
    package = {SKILL_FILE: FileContent(text.encode())}
    library.custom.write(name, package, SkillChange("user", "made from the template"), expected="")
    file = library.custom.folder(name) / SKILL_FILE
    if as_json:
        return _print_json({"skill_name": name, "file": str(file)})
    _say(f"Made {file}. Write its steps, then: deerflow skills validate {name}")
    return 0


def validate(*, config: Path | None, as_json: bool, target: str, is_strict: bool) -> int:
    """Check a folder, or an installed skill by its name; the exit code is 1 if it is not valid."""
    folder = Path(target).expanduser()
    if not folder.is_dir():
        if "/" in target or target.endswith(_ARCHIVES):
            raise InvalidInputError(f"'{target}' is no folder; validate takes a folder or a skill's name")
        folder = LocalSkills(config).library.find(target).folder
    problems = validate_package(folder.resolve())
    is_valid = not any(problem.level == "error" or is_strict for problem in problems)
    if as_json:
        _print_json(
            {"valid": is_valid, "folder": str(folder), "problems": [asdict(each) for each in problems]}
        )
    else:
        _print_problems(problems)
        print("Valid." if is_valid else "Not valid.")
    return 0 if is_valid else 1


def _print_problems(problems: Sequence[ValidationProblem]) -> None:
    for problem in problems:
        _say(str(problem))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"


def _say(text: str) -> None:
    """Print text of others without control characters, line by line."""
    console = _console()
    for line in text.split("\n"):
        console.print(printable(line), soft_wrap=True)


def _console() -> Console:
    return Console(highlight=False, markup=False)


def _print_json(value: Any) -> int:
    print(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
    return 0


_COMMANDS: dict[str, Callable[..., int]] = {"new": new, "validate": validate}
"""Commands on the files of this machine only."""
_ACTIONS: dict[str, Any] = {
    "list": _list,
    "show": _show,
    "install": _install,
    "remove": _remove,
    "enable": _enable,
    "export": _export,
    "search": _search,
    "history": _history,
    "rollback": _rollback,
    "diff": _diff,
    "draft": _draft,
    "promote": _promote,
    "discard": _discard,
}
