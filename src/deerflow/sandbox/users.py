"""Who runs commands when the server is root, and where that user can reach a thread's files."""

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
from deerflow.sandbox.tiers import tier_of
from deerflow.sandbox.trees import TreeUse, entries

SANDBOX_UID = 65531
"""User and group of all commands of a server that runs as root.

No system hands this number out: Debian reserves 65000 to 65533, systemd leaves 65520 to 65533 free.
It is below 65536, so it also exists in containers with their own, small range of users.
"""

STATE_ROOT = Path("/var/lib/deerflow")
"""Where a root server keeps what the commands' user has to reach when its own home is closed to others."""

_ENTER_ALL = 0o011
_NEEDED = sum(1 << number for number in (0, 1, 3, 5, 6, 7))
"""The capabilities chown, dac_override, fowner, kill, setgid and setuid."""

_PTRACE = 19


def sandbox_uid() -> int | None:
    """Return the user that commands become; None where they stay who we are."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return None
    # The root of a user namespace without other users can give files to nobody; nor can one without the
    # capabilities that make root more than a name (a container that drops them all).
    maps = (Path("/proc/self/uid_map").read_text(), Path("/proc/self/gid_map").read_text())
    is_able = can_change_users(Path("/proc/self/status").read_text())
    return SANDBOX_UID if is_able and all(has_number(each, SANDBOX_UID) for each in maps) else None


def can_change_users(status: str) -> bool:
    """Tell whether a process with this `/proc/PID/status` may give files to others and act as them."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return found is not None and int(found[1], 16) & _NEEDED == _NEEDED


def can_look_into_processes() -> bool:
    """Tell whether we may look into processes of other users; the root of many containers may not."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) & 1 << _PTRACE)


def has_number(id_map: str, number: int) -> bool:
    """Tell whether a user namespace with this map (lines of: first, first outside, count) has a number."""
    ranges = ((int(first), int(count)) for first, _, count in map(str.split, id_map.splitlines()))
    return any(first <= number < first + count for first, count in ranges)


def choose_users_root(paths: Paths, settings: SandboxSettings) -> Path | None:
    """Return where threads live when the home is closed to the commands' user, else what `paths` says."""
    uid = sandbox_uid()
    if uid is None or paths.users_root or tier_of(settings) not in ("isolated", "landlock"):
        return paths.users_root
    if can_enter(paths.home / "users", uid):
        return None
    # one server may have several homes on a machine: each gets a folder of its own
    name = hashlib.sha256(os.fsencode(paths.home.resolve())).hexdigest()[:12]
    return open_folder(STATE_ROOT / name / "users")


def open_folder(path: Path) -> Path | None:
    """Make a folder of root below `STATE_ROOT` that others may pass but not list; None where that fails."""
    try:
        for folder in [*reversed(path.parents), path]:
            if folder.is_relative_to(STATE_ROOT):
                folder.mkdir(mode=0o711, exist_ok=True)
                about = folder.lstat()
                if not stat.S_ISDIR(about.st_mode) or about.st_uid != 0:
                    return None  # somebody else's, or a link: nothing that root should trust
                folder.chmod(0o711)
    except OSError:
        return None
    return path


def can_enter(path: Path, uid: int) -> bool:
    """Tell whether `uid`, in no group but its own, may pass every folder of `path` that exists."""
    for folder in [*reversed(path.absolute().parents), path.absolute()]:
        try:
            about = folder.stat()
        except OSError:
            return True  # what is not there yet will be made with open doors
        if not about.st_mode & _right_to_pass(about, uid):
            return False
    return True


def _right_to_pass(about: os.stat_result, uid: int) -> int:
    if about.st_uid == uid:
        return stat.S_IXUSR
    return stat.S_IXGRP if about.st_gid == uid else stat.S_IXOTH


def unreachable(table: PathTable, uid: int | None) -> list[PathMapping]:
    """Return the mappings whose folders the commands' user cannot get to."""
    return [mapping for mapping in table.mappings if uid is not None and not can_enter(mapping.host, uid)]


@contextmanager
def scratch_folders(uid: int | None) -> Iterator[ThreadFolders]:
    """Make folders for a trial that the commands' user can reach, and remove them with the block."""
    parent = open_folder(STATE_ROOT / "scratch") if uid is not None else None
    with tempfile.TemporaryDirectory(dir=parent, prefix="deerflow-", ignore_cleanup_errors=True) as name:
        folders = ThreadFolders("scratch", Path(name))
        folders.create()
        hand_over(folders, uid)
        yield folders


def hand_over(folders: ThreadFolders, uid: int | None) -> None:
    """Give a thread's folders to the commands' user, and let that user pass the folders above.

    Without such a user there is only the thread's `/tmp` to make. Nobody else gets into the thread's folder.
    """
    temporary = temporary_folder(folders)
    temporary.mkdir(mode=0o700, exist_ok=True)
    if uid is None:
        close_to_others(folders)
        return
    for folder in (folders.user_data, folders.root):
        _let_pass(folder, group=uid)
    parents = list(folders.root.parents)[:3]
    if [folder.name for folder in parents[::2]] == ["threads", "users"]:
        for folder in parents:  # all of them ours, down from `users`
            _let_pass(folder)
    for folder in (folders.workspace, folders.uploads, folders.outputs, temporary):
        fd = os.open(folder, os.O_RDONLY | O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(fd).st_uid != uid:
                _give_tree(fd, uid)
        finally:
            os.close(fd)


def close_to_others(folders: ThreadFolders) -> None:
    """Keep other users of this host out of a thread's folder, also one that was made with open doors."""
    with suppress(OSError):  # somebody else's: its modes are not ours to choose
        folders.root.chmod(0o700)


def _let_pass(folder: Path, *, group: int | None = None) -> None:
    """Let everybody pass a folder of ours, or only `group`."""
    with suppress(OSError):
        about = folder.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
            return
        if group is None:
            folder.chmod(stat.S_IMODE(about.st_mode) | _ENTER_ALL)
        else:
            os.chown(folder, -1, group, follow_symlinks=False)
            folder.chmod(0o710)


def _give_tree(folder: int, uid: int) -> None:
    """Give away what an earlier, unconfined time left; a file with a second name may not be ours to give."""
    for entry in entries(folder, TreeUse()):
        mode = entry.about.st_mode
        if stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and entry.about.st_nlink == 1):
            os.chown(entry.name, uid, uid, dir_fd=entry.folder, follow_symlinks=False)
    os.fchown(folder, uid, uid)
    os.fchmod(folder, 0o700)
