"""Virtual paths: validates the paths that the model uses and maps them to folders of this host."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from deerflow.config import MountSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import ConfigError, PathRefusedError

USER_DATA = "/mnt/user-data"
WORKSPACE = f"{USER_DATA}/workspace"
UPLOADS = f"{USER_DATA}/uploads"
OUTPUTS = f"{USER_DATA}/outputs"
SKILLS = "/mnt/skills"
ACP_WORKSPACE = "/mnt/acp-workspace"
TEMPORARY = "/tmp"

MAX_PATH_BYTES = 4095
MAX_NAME_BYTES = 255
MAX_DEPTH = 128
SYSTEM_FOLDERS = ("bin", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "tmp", "usr")
"""Top-level folders that an operator's mount may not hide."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DRIVE = re.compile(r"^[A-Za-z]:")
_DEVICE = re.compile(r"(?i)^(con|prn|aux|nul|com[1-9]|lpt[1-9])(\..*)?$")


@dataclass(frozen=True, slots=True)
class PathMapping:
    """A host folder and its virtual path in commands and tools."""

    virtual: str
    host: Path
    read_only: bool = False


SkillMounts = Callable[[ThreadFolders], Sequence[PathMapping]]
"""Returns the existing folders of skills that a thread sees, read-only; they may differ between calls."""


def no_skills(_: ThreadFolders) -> Sequence[PathMapping]:
    """Return no folder of skills."""
    return ()


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """A resolved virtual path: its mapping and the path components below it."""

    mapping: PathMapping
    parts: tuple[str, ...]

    @property
    def virtual(self) -> str:
        return "/".join((self.mapping.virtual, *self.parts))


class PathTable:
    """All path mappings of one thread, the longest virtual path first."""

    def __init__(self, mappings: Iterable[PathMapping]) -> None:
        self.mappings = tuple(sorted(mappings, key=lambda mapping: -len(mapping.virtual)))

    def resolve(self, path: str) -> ResolvedPath:
        """Resolve `path`; relative paths start in the workspace."""
        parts = _checked_parts(path)
        for mapping in self.mappings:
            root = tuple(mapping.virtual.strip("/").split("/"))
            if parts[: len(root)] == root:
                return ResolvedPath(mapping, parts[len(root) :])
        raise PathRefusedError(f"{shown(path)} is outside the folders of this thread; use {self._names()}")

    def resolve_for_writing(self, path: str) -> ResolvedPath:
        """Resolve `path` and check that it may be written."""
        resolved = self.resolve(path)
        if resolved.mapping.read_only:
            raise PathRefusedError(
                f"{shown(path)} is read-only; write below {WORKSPACE} or {OUTPUTS} instead"
            )
        if not resolved.parts:
            raise PathRefusedError(f"{shown(path)} is a folder; name a file below it")
        _refuse_ambiguous_name(resolved.parts[-1])
        return resolved

    def resolve_folders(self, path: str) -> list[ResolvedPath]:
        """Resolve `path`; for a mere parent of mappings, return the mappings below it."""
        parts = _checked_parts(path)
        prefix = "/" + "".join(f"{part}/" for part in parts)
        below = [ResolvedPath(found, ()) for found in self.mappings if found.virtual.startswith(prefix)]
        return sorted(below, key=lambda found: found.virtual) or [self.resolve(path)]

    def _names(self) -> str:
        return ", ".join(sorted(mapping.virtual for mapping in self.mappings))


def thread_paths(
    folders: ThreadFolders, *, skills: Iterable[PathMapping] = (), mounts: Iterable[MountSettings] = ()
) -> PathTable:
    """Return the mappings of one thread: its own folders, the skills, and the operator's mounts."""
    mappings = [
        PathMapping(WORKSPACE, folders.workspace),
        PathMapping(UPLOADS, folders.uploads),
        PathMapping(OUTPUTS, folders.outputs),
        *skills,
    ]
    if (acp := folders.acp_workspace).is_dir():
        mappings.append(PathMapping(ACP_WORKSPACE, acp, read_only=True))
    mappings += [checked_mount(mount) for mount in mounts]
    return PathTable(mappings)


def shell_paths(folders: ThreadFolders, table: PathTable) -> PathTable:
    """Return the mappings for a thread's commands: `table` plus a `/tmp` that persists between commands."""
    return PathTable([*table.mappings, PathMapping(TEMPORARY, temporary_folder(folders))])


def temporary_folder(folders: ThreadFolders) -> Path:
    """Return the host folder of a thread's `/tmp`; it is deleted with the thread."""
    return folders.root / "tmp"


def checked_mount(mount: MountSettings) -> PathMapping:
    """Return an entry of `sandbox.mounts` as a mapping; raise `ConfigError` for an unsafe one."""
    key = f"sandbox.mounts: {mount.container_path}"
    virtual = checked_container_path(mount.container_path, key=key)
    host = Path(mount.host_path).expanduser()
    if not host.is_absolute() or not host.is_dir():
        raise ConfigError(f"{key}: host_path {mount.host_path} is not an existing absolute folder")
    return PathMapping(virtual, host.resolve(), mount.read_only)


def checked_container_path(path: str, *, key: str) -> str:
    """Return a path in sandboxes that settings name; raise `ConfigError` with `key` for an unsafe one."""
    virtual = PurePosixPath(path)
    names = virtual.parts[1:]
    if not virtual.is_absolute() or not names or ".." in names or _CONTROL.search(path):
        raise ConfigError(f"{key} must be an absolute path below '/', such as /mnt/data")
    if names[0] in SYSTEM_FOLDERS or str(virtual) in ("/mnt", USER_DATA):
        raise ConfigError(f"{key} would hide a folder of the system; use a path such as /mnt/data")
    return str(virtual)


def shown(path: str) -> str:
    """Return `path` formatted for a message: one line, printable, of limited length."""
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return text if len(text) <= 300 else f"{text[:200]}…{text[-80:]}"


def _checked_parts(path: str) -> tuple[str, ...]:
    if not path or not path.strip():
        raise PathRefusedError(f"the path is empty; name a file such as {WORKSPACE}/notes.md")
    if _CONTROL.search(path):
        raise PathRefusedError(f"{shown(path)} has control characters; use a plain name")
    if "\\" in path or _DRIVE.match(path):
        raise PathRefusedError(f"{shown(path)} is written for Windows; use '/' and a path below {USER_DATA}")
    full = path if path.startswith("/") else f"{WORKSPACE}/{path}"
    parts = tuple(part for part in full.split("/") if part not in ("", "."))
    if ".." in parts:
        raise PathRefusedError(f"{shown(path)} goes upwards; write the whole path without '..'")
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError as error:
        raise PathRefusedError(f"{shown(path)} is not valid text; use another name") from error
    if (
        sum(sizes) + len(sizes) > MAX_PATH_BYTES
        or len(parts) > MAX_DEPTH
        or max(sizes, default=0) > MAX_NAME_BYTES
    ):
        raise PathRefusedError(
            f"{shown(path)} is too long: names have at most {MAX_NAME_BYTES} bytes, "
            f"paths {MAX_PATH_BYTES} bytes and {MAX_DEPTH} levels"
        )
    return parts


def _refuse_ambiguous_name(name: str) -> None:
    # Windows drops a trailing dot or space and treats some names as devices; files written on this host
    # may be unpacked there.
    if name.endswith((".", " ")) or _DEVICE.match(name):
        raise PathRefusedError(
            f"'{shown(name)}' means something else on other systems; use another file name"
        )
