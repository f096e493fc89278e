"""The unprivileged user that runs commands of a root server, and that user's access to a thread's files."""

import hashlib
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from deerflow.config import Paths, SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.sandbox.openat2 import O_DIRECTORY
from deerflow.sandbox.paths import PathMapping, PathTable, temporary_folder
from deerflow.sandbox.provider import tier_of
from deerflow.sandbox.trees import TreeUse, entries

SANDBOX_UID = 65531
"""User and group id of all commands of a server that runs as root.

No system assigns this id: Debian reserves 65000 to 65533, systemd leaves 65520 to 65533 free.
It is below 65536, so it also exists in containers with a small id range of their own.
"""

STATE_ROOT = Path("/var/lib/deerflow")
"""Where a root server keeps files for the commands' user when its own home is not accessible to others."""

_ENTER_ALL = 0o011
_NEEDED = sum(1 << number for number in (0, 1, 3, 5, 6, 7))
"""Bit mask of CAP_CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID and SETUID."""

_PTRACE = 19


def sandbox_uid() -> int | None:
    """Return the user that commands run as; None for the server's own user."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return None
    # Root cannot chown to another user in a user namespace that maps no other users, or without the
    # needed capabilities (a container that drops them all).
    maps = (Path("/proc/self/uid_map").read_text(), Path("/proc/self/gid_map").read_text())
    is_able = can_change_users(Path("/proc/self/status").read_text())
    return SANDBOX_UID if is_able and all(has_number(each, SANDBOX_UID) for each in maps) else None


def can_change_users(status: str) -> bool:
    """Return whether a process with this `/proc/PID/status` may chown to other users and become them."""
    return _capabilities(status) & _NEEDED == _NEEDED


def can_inspect_processes() -> bool:
    """Return whether this process may inspect other users' processes; root in many containers may not."""
    return bool(_capabilities(Path("/proc/self/status").read_text()) & 1 << _PTRACE)


def _capabilities(status: str) -> int:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return int(found[1], 16) if found else 0


def has_number(id_map: str, number: int) -> bool:
    """Return whether a user namespace with this map (lines of: first, first outside, count) has an id."""
    ranges = ((int(first), int(count)) for first, _, count in map(str.split, id_map.splitlines()))
    return any(first <= number < first + count for first, count in ranges)


def choose_users_root(paths: Paths, settings: SandboxSettings) -> Path | None:
    """Return `paths.users_root`, or a folder in `STATE_ROOT` if the commands' user cannot enter the home."""
    uid = sandbox_uid()
    if uid is None or paths.users_root or tier_of(settings) not in ("isolated", "landlock"):
        return paths.users_root
    if can_enter(paths.home / "users", uid):
        return None
    # several servers with different homes may share a machine: each home gets its own folder
    name = hashlib.sha256(os.fsencode(paths.home.resolve())).hexdigest()[:12]
    return open_folder(STATE_ROOT / name / "users")


def open_folder(path: Path) -> Path | None:
    """Create a root-owned folder below `STATE_ROOT` with mode 0711; return None when that fails."""
    try:
        for folder in [*reversed(path.parents), path]:
            if folder.is_relative_to(STATE_ROOT):
                folder.mkdir(mode=0o711, exist_ok=True)
                about = folder.lstat()
                if not stat.S_ISDIR(about.st_mode) or about.st_uid != 0:
                    return None  # owned by another user, or a link: root must not trust it
                folder.chmod(0o711)
    except OSError:
        return None
    return path


def can_enter(path: Path, uid: int) -> bool:
    """Return whether `uid`, in no group but its own, may traverse every existing folder of `path`."""
    for folder in [*reversed(path.absolute().parents), path.absolute()]:
        try:
            about = folder.stat()
        except OSError:
            return True  # missing folders will be created traversable
        others = stat.S_IXGRP if about.st_gid == uid else stat.S_IXOTH
        if not about.st_mode & (stat.S_IXUSR if about.st_uid == uid else others):
            return False
    return True


def unreachable(table: PathTable, uid: int | None) -> list[PathMapping]:
    """Return the mappings whose folders the commands' user cannot access."""
    return [mapping for mapping in table.mappings if uid is not None and not can_enter(mapping.host, uid)]


@contextmanager
def scratch_folders(uid: int | None) -> Iterator[ThreadFolders]:
    """Create thread folders that the commands' user can access; remove them when the block exits."""
    parent = open_folder(STATE_ROOT / "scratch") if uid is not None else None
    with tempfile.TemporaryDirectory(dir=parent, prefix="deerflow-", ignore_cleanup_errors=True) as name:
        folders = ThreadFolders("scratch", Path(name))
        prepare_folders(folders, uid)
        yield folders


def prepare_folders(folders: ThreadFolders, uid: int | None) -> None:
    """Create a thread's folders, make the commands' user own them, and let that user traverse their parents.

    Without such a user, they belong to this process's. Other users cannot enter the thread's folder.
    """
    folders.create()
    temporary = temporary_folder(folders)
    temporary.mkdir(mode=0o700, exist_ok=True)
    if uid is None:
        close_to_others(folders)
        return
    for folder in (folders.user_data, folders.root):
        _make_traversable(folder, group=uid)
    parents = list(folders.root.parents)[:3]
    if [folder.name for folder in parents[::2]] == ["threads", "users"]:
        for folder in parents:  # these are DeerFlow's own folders, from `users` down
            _make_traversable(folder)
    for folder in (folders.workspace, folders.uploads, folders.outputs, temporary):
        fd = os.open(folder, os.O_RDONLY | O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(fd).st_uid != uid:
                _chown_tree(fd, uid)
        finally:
            os.close(fd)


def close_to_others(folders: ThreadFolders) -> None:
    """Make a thread's folder inaccessible to other users of this host, also one created with a wider mode."""
    with suppress(OSError):  # owned by another user: its mode cannot be changed
        folders.root.chmod(0o700)


def _make_traversable(folder: Path, *, group: int | None = None) -> None:
    """Make a folder that this process owns traversable for all users, or only for `group`."""
    with suppress(OSError):
        about = folder.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
            return
        if group is None:
            folder.chmod(stat.S_IMODE(about.st_mode) | _ENTER_ALL)
        else:
            os.chown(folder, -1, group, follow_symlinks=False)
            folder.chmod(0o710)


def _chown_tree(folder: int, uid: int) -> None:
    """Chown files left by earlier, unconfined runs; skip hard links, which may be another user's file."""
    for entry in entries(folder, TreeUse()):
        mode = entry.about.st_mode
        if stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and entry.about.st_nlink == 1):
            os.chown(entry.name, uid, uid, dir_fd=entry.folder, follow_symlinks=False)
    os.fchown(folder, uid, uid)
    os.fchmod(folder, 0o700)
