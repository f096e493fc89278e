"""Reads and writes `extensions_config.json`, preserving unknown keys."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from yaml import YAMLError
from yaml.nodes import Node

from deerflow.config.check import check
from deerflow.config.extensions import ExtensionsSettings, McpServerSettings, SkillState
from deerflow.config.section import Section
from deerflow.config.variables import Unset, restore, substitute
from deerflow.config.yaml_file import MAX_BYTES, MAX_DEPTH, Document, compose, read_text
from deerflow.errors import ConfigError

try:
    import fcntl
except ImportError:  # not on Windows: there writers are serialized only within one process
    fcntl = None  # type: ignore[assignment]


_JSON_HINT = "in JSON names and texts stand in double quotes, commas only between entries, and no comments"


def read_extensions(path: Path | None, env: Mapping[str, str]) -> tuple[ExtensionsSettings, list[Unset]]:
    """Return the contents of the file with variables replaced, and the unset variables."""
    document = read_document(path)
    data, unset = substitute(document.data, env)
    return check(ExtensionsSettings, data, document), unset


def read_skill_states(path: Path) -> dict[str, SkillState]:
    """Return which skills a `skills_state_config.json` enables, by name or as `{"enabled": …}`."""
    document = read_document(path)
    listed = document.data.get("skills", document.data)
    if not isinstance(listed, dict):
        raise ConfigError(f'{path}: "skills" must be an object, such as {{"notes": {{"enabled": false}}}}')
    states = {}
    for name, value in listed.items():
        is_enabled = value.get("enabled", True) if isinstance(value, dict) else value
        if not isinstance(is_enabled, bool):
            where = f"{path}{document.at(('skills', name) if 'skills' in document.data else (name,))}"
            raise ConfigError(f'{where}: {name}: write true, false or {{"enabled": false}}')
        states[name] = SkillState(enabled=is_enabled)
    return states


def read_document(path: Path | None) -> Document:
    """Return the raw contents of the file, with `$VAR` not replaced; empty for a missing file."""
    if path is None or not (path.exists() or path.is_symlink()):
        return Document(path, {})
    return parse_json(read_text(path), path)


def parse_json(text: str, path: Path | None) -> Document:
    """Return the contents of a JSON text; `path` is for messages."""
    where = str(path or "extensions_config.json")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigError(f"{where}: the key {twice!r} stands twice in one object; keep one")
        return found

    def refuse(constant: str) -> NoReturn:
        raise ConfigError(f"{where}: {constant} is not JSON; write a number, a text or null")

    try:
        data = json.loads(text, object_pairs_hook=unique, parse_constant=refuse) if text.strip() else {}
    except json.JSONDecodeError as error:
        at = f"{where} line {error.lineno} column {error.colno}"
        raise ConfigError(f"{at}: {error.msg}; {_JSON_HINT}") from error
    except (RecursionError, ValueError) as error:  # thousands of brackets, or thousands of digits
        raise ConfigError(f"{where}: nested too deeply or a number too long") from error
    if not isinstance(data, dict):
        raise ConfigError(f'{where}: the top level must be an object, such as {{"mcpServers": {{}}}}')
    if _depth(data) > MAX_DEPTH:
        raise ConfigError(f"{where}: more than {MAX_DEPTH} levels")
    return Document(path, data, _nodes(text))


def _nodes(text: str) -> Node | None:
    """Return YAML nodes for line numbers: nearly all JSON is YAML; None for the rest."""
    try:
        return compose(text)
    except YAMLError:
        return None


@contextmanager
def alone_at(path: Path) -> Iterator[None]:
    """Hold a lock that keeps other processes from editing the file."""
    if fcntl is None:
        yield
        return
    folder = path.resolve().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Lock the folder: every writer replaces the file itself.
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from error
    try:
        with suppress(OSError):  # some network file systems do not support flock
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def save_extensions(
    path: Path, update: Mapping[str, Any], *, env: Mapping[str, str] = os.environ
) -> ExtensionsSettings:
    """Write the top-level keys of `update` into the file atomically; return the new settings.

    Keys that `update` does not name are kept, also inside a server or skill that it names. A value that
    equals the value of a `$VAR` in the file is written as that `$VAR` again.
    """
    path = path.resolve()  # replace the target of a link, not the link
    raw = read_document(path).data
    document = {**raw, **{key: _merged(key, value, raw.get(key), env) for key, value in update.items()}}
    settings = check(ExtensionsSettings, substitute(document, env)[0], Document(path, document))
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    if len(text.encode()) > MAX_BYTES:
        raise ConfigError(f"{path} would be larger than {MAX_BYTES // 1_000_000} MB")
    _replace(path, text)
    return settings


def _merged(key: str, value: Any, old: Any, env: Mapping[str, str]) -> Any:
    """Return the new value of a top-level key, with the unknown keys of the old value."""
    value = restore(value, old, env)
    if not isinstance(value, dict) or not isinstance(old, dict):
        return value
    known = _names(McpServerSettings) | {"transport"} if key == "mcpServers" else {"enabled"}
    return {
        name: {**{k: v for k, v in old[name].items() if k not in known}, **entry}
        if isinstance(entry, dict) and isinstance(old.get(name), dict)
        else entry
        for name, entry in value.items()
    }


def _names(section: type[Section]) -> set[str]:
    return set(section.model_fields)


def _replace(path: Path, text: str) -> None:
    """Replace the file atomically, so that a reader sees the old or the new file, also after a crash."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600  # it may contain tokens
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _depth(value: Any) -> int:
    """Return the depth of `value`, computed iteratively so that deep values cannot exhaust the stack."""
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return depth
