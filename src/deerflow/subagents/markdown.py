"""Read sub-agents from Markdown files: the front matter configures them, the body is the system prompt.

The format is that of Claude Code, so that files written for it work here: its tool names are mapped, and
unknown keys are ignored. A file that cannot be read is skipped with a warning in the log.
"""

import logging
import re
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from deerflow.domain.regular_files import read_regular_text
from deerflow.skills.front_matter import FRONT_MATTER, front_matter
from deerflow.subagents.config import INHERIT

logger = logging.getLogger(__name__)

RESCAN_SECONDS = 2.0
MAX_FILE_BYTES = 200_000
MAX_DESCRIPTION_CHARS = 1024
OTHER_NAMES = {
    "bash": "bash",
    "edit": "str_replace",
    "glob": "glob",
    "grep": "grep",
    "ls": "ls",
    "multiedit": "str_replace",
    "read": "read_file",
    "task": "task",
    "webfetch": "web_fetch",
    "websearch": "web_search",
    "write": "write_file",
}


def _names(value: Any) -> Any:
    """Parse names given as a list or separated by commas."""
    if isinstance(value, str):
        value = re.split(r",(?![^(]*\))", value)
    if not isinstance(value, list):
        return value
    return tuple(str(name).strip() for name in value if str(name).strip())


def _tool_names(value: Any) -> Any:
    names = _names(value)
    if not isinstance(names, tuple):
        return names
    plain = [name.partition("(")[0].strip() for name in names]  # `Bash(git:*)`: the tool without its pattern
    return tuple(dict.fromkeys(OTHER_NAMES.get(name.lower(), name) for name in plain))


def _one_line(value: Any) -> Any:
    # One line and no angle brackets: it becomes part of the system prompt.
    if not isinstance(value, str):
        return value
    return " ".join(value.replace("<", "‹").replace(">", "›").split())[:MAX_DESCRIPTION_CHARS]


Tools = Annotated[tuple[str, ...] | None, BeforeValidator(_tool_names)]


class MarkdownSubagent(BaseModel):
    """A sub-agent as described in a file."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")
    description: Annotated[str, BeforeValidator(_one_line)] = Field(min_length=1)
    system_prompt: str = Field(min_length=1)
    tools: Tools = None
    disallowed_tools: Tools = Field(
        None, validation_alias=AliasChoices("disallowed_tools", "disallowedTools", "disallowed-tools")
    )
    skills: Annotated[tuple[str, ...] | None, BeforeValidator(_names)] = None
    model: str = INHERIT
    thinking: bool | None = None
    max_turns: int | None = Field(
        None, ge=1, validation_alias=AliasChoices("max_turns", "maxTurns", "max-turns")
    )
    timeout_seconds: float | None = Field(None, ge=1)


class MarkdownSubagents:
    """The sub-agents in some folders, read again on changes; for equal names the later folder wins."""

    def __init__(self, folders: Sequence[Path], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._folders = tuple(folders)
        self._clock = clock
        self._scanned_at = float("-inf")
        self._stamps: Mapping[Path, tuple[int, int]] = {}
        self._found: tuple[MarkdownSubagent, ...] = ()

    def all(self) -> tuple[MarkdownSubagent, ...]:
        """Return all of them; without changes to the files, the same tuple as before."""
        now = self._clock()
        if self._folders and now - self._scanned_at >= RESCAN_SECONDS:
            self._scanned_at = now
            stamps = {file: stamp for folder in self._folders for file, stamp in _files(folder)}
            if stamps != self._stamps:
                self._stamps = stamps
                self._found = _read_all(stamps)
        return self._found


def read_subagent(file: Path) -> MarkdownSubagent:
    """Return the sub-agent described in a file; raise `ValueError` when it is invalid."""
    text = read_regular_text(file, max_bytes=MAX_FILE_BYTES)
    matter = front_matter(text)
    found = FRONT_MATTER.match(text)
    body = text[found.end() :].strip() if found else ""
    try:
        return MarkdownSubagent.model_validate({"name": file.stem, **matter, "system_prompt": body})
    except ValidationError as error:
        faults = [f"'{fault['loc'][0]}': {fault['msg']}" for fault in error.errors()]
        raise ValueError("; ".join(faults)) from error


def _read_all(files: Mapping[Path, object]) -> tuple[MarkdownSubagent, ...]:
    found: dict[str, MarkdownSubagent] = {}
    for file in files:
        try:
            subagent = read_subagent(file)
        except (OSError, ValueError) as error:
            logger.warning("sub-agent %s left out: %s", file, error)
            continue
        found[subagent.name] = subagent
    return tuple(found[name] for name in sorted(found))


def _files(folder: Path) -> list[tuple[Path, tuple[int, int]]]:
    """Return the Markdown files of a folder with modification time and size; symlinks are skipped."""
    found: list[tuple[Path, tuple[int, int]]] = []
    with suppress(OSError):  # no such folder
        for file in sorted(folder.glob("*.md")):
            with suppress(FileNotFoundError):  # removed since it was listed, as when an editor saves
                about = file.lstat()
                if stat.S_ISREG(about.st_mode) and file.stem.lower() != "readme":
                    found.append((file, (about.st_mtime_ns, about.st_size)))
    return found
