"""Every setting is read by the code, or waits for a feature that is named."""

import ast
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from support.project import Project

import deerflow
from deerflow.config import ExtensionsSettings, Section, Settings
from deerflow.config.agents import CustomSubagent, SubagentOverride, TeamRoleSettings
from deerflow.config.check import sections_in
from deerflow.config.effect import REMOVED, WAITING
from deerflow.config.storage import CheckpointerSettings

PACKAGE = Path(deerflow.__file__).parent

READ_BY_NAME = {
    CheckpointerSettings: "storage.database_from turns the mapping into `database:`",
    CustomSubagent: "subagents.registry copies the fields of SubagentConfig",
    SubagentOverride: "subagents.registry copies the fields of SubagentConfig",
    TeamRoleSettings: "subagents.registry copies the fields of SubagentConfig",
}
"""Sections whose fields are read as a mapping or by `getattr`, and where."""
READ_OTHERWISE = {
    "acp_agents.model": "acp.session, as `task.agent.model`",
    "memory.enabled": "MemorySettings.is_on",
    "memory.store_config": "stores of other packages",
    "models.output_version": "passed to the model's class with the keys that are not ours",
    "models.thinking": "models.arguments, with `getattr`",
    "models.use_responses_api": "passed to the model's class with the keys that are not ours",
}
"""Settings whose readers are not recognised, and where they are."""


def all_sections(section: type[Section]) -> set[type[Section]]:
    inner = {inner for field in section.model_fields.values() for inner in sections_in(field.annotation)}
    return {section}.union(*(all_sections(one) for one in inner))


SECTIONS = all_sections(Settings) | all_sections(ExtensionsSettings)
DECLARED = Counter(name for section in SECTIONS for name in section.model_fields)


def reads_in(path: Path) -> tuple[set[tuple[str, str]], set[str]]:
    """Return the attributes that a module reads, each after the name it is read from, and all names.

    A local variable counts as what it is assigned: after `limits = settings.uploads`, `limits.max_files` is
    read from `uploads`.
    """
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    reads, aliases = set(), defaultdict(set)
    for node in nodes:
        match node:
            case ast.Attribute(
                value=ast.Attribute(attr=owner) | ast.Name(id=owner), attr=name, ctx=ast.Load()
            ):
                reads.add((owner, name))
            case ast.Attribute(attr=name, ctx=ast.Load()):
                reads.add(("", name))
            case (
                ast.Assign(targets=[target], value=value)
                | ast.NamedExpr(target=target, value=value)
                | ast.For(target=target, iter=value)
                | ast.comprehension(target=target, iter=value)
            ):
                assigned = [inner.id for inner in ast.walk(target) if isinstance(inner, ast.Name)]
                values = {inner.attr for inner in ast.walk(value) if isinstance(inner, ast.Attribute)}
                for name in assigned:
                    aliases[name] |= values
    reads |= {(real, name) for owner, name in reads for real in aliases[owner]}
    return reads, names


MODULES = [reads_in(path) for path in sorted(PACKAGE.rglob("*.py"))]


def is_read(section: type[Section], name: str) -> bool:
    """Return whether a module reads the field.

    A name that several sections declare must be read from a field that holds the section (`title.enabled`),
    or in a module that names the section's class.
    """
    if DECLARED[name] == 1:
        return any(name == read for reads, _ in MODULES for _, read in reads)
    holders = {
        field
        for other in SECTIONS
        for field, info in other.model_fields.items()
        if section in sections_in(info.annotation)
    }
    return any(
        name == read and (owner in holders or section.__name__ in names)
        for reads, names in MODULES
        for owner, read in reads
    )


def unread(section: type[Section], path: str = "") -> list[str]:
    """Return the dotted names of all fields below `section` that nothing reads."""
    found = []
    for name, field in section.model_fields.items():
        dotted = f"{path}{name}"
        if dotted in WAITING:
            continue
        if section not in READ_BY_NAME and dotted not in READ_OTHERWISE and not is_read(section, name):
            found.append(dotted)
        for inner in sections_in(field.annotation):
            found += unread(inner, f"{dotted}.")
    return found


@pytest.mark.parametrize("section", [Settings, ExtensionsSettings])
def test_every_setting_is_read(section: type[Section]) -> None:
    assert unread(section) == [], "read it, remove it, or name its feature in WAITING in config/effect.py"


def test_a_field_that_nothing_reads_is_found() -> None:
    class Title(Section):
        enabled: bool = True
        never_read_by_anything: bool = True

    class Root(Section):
        title: Title = Title()

    assert unread(Root) == ["title.never_read_by_anything"]


@pytest.mark.parametrize("name", sorted(WAITING))
def test_what_is_read_does_not_wait(name: str) -> None:
    parent, _, key = name.rpartition(".")

    is_read = any(
        (owner, key) in reads for reads, _ in MODULES for owner in ("settings", parent or "settings")
    )

    assert not is_read, f"take {name} out of WAITING in config/effect.py"


def test_a_removed_setting_still_loads_with_a_warning(project: Project) -> None:
    loaded = project.load(
        "stream_bridge: {type: redis, redis_url: $REDIS_URL}\n"
        "scheduler: {enabled: false, multi_instance: true}\n"
        "plugins: [{name: search, use: 'x:Y'}]\n"
    )

    assert loaded.problems == ()
    assert {unused.key for unused in loaded.unused} == {
        "stream_bridge",
        "scheduler.multi_instance",
        "plugins",
    }
    assert all(unused.is_known and unused.meant is None for unused in loaded.unused)
    (warning,) = loaded.warnings
    assert warning == (
        "these keys of config.yaml have no effect here: stream_bridge (line 1), plugins (line 3), "
        "scheduler.multi_instance (line 2)"
    )


def test_a_removed_setting_is_not_declared() -> None:
    for name in REMOVED - {"mcpInterceptors"}:
        section: type[Section] = Settings
        *above, last = name.split(".")
        for part in above:
            section = next(sections_in(section.model_fields[part].annotation))
        assert last not in section.model_fields
