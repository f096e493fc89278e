"""Measures and removes trees that a hostile command may have created: unreadable, deep, full of links."""

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from deerflow.sandbox.openat2 import O_DIRECTORY, O_PATH

MAX_DEPTH = 100
"""Bounded because each level costs a descriptor and a stack frame."""
MAX_LOCKED = 16
"""Maximum number of folders that neither the server nor their owner may read; their content is unknown."""
_STEP = 32
_FOLDER = os.O_RDONLY | O_DIRECTORY | getattr(os, "O_NOFOLLOW", 0)


@dataclass(slots=True)
class TreeUse:
    """Disk usage of a tree."""

    used_bytes: int = 0
    files: int = 0
    locked: int = 0
    is_too_deep: bool = False


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """An entry of a tree; `folder` is open until the walk continues."""

    folder: int
    name: str
    about: os.stat_result


def measure(folders: list[Path], *, max_files: int) -> TreeUse:
    """Return the disk usage of `folders`; counting stops above `max_files`."""
    use = TreeUse()
    for path in folders:
        with suppress(FileNotFoundError):
            folder = os.open(path, _FOLDER)
            try:
                for entry in entries(folder, use):
                    use.used_bytes += entry.about.st_blocks * 512
                    use.files += 1
                    if use.files > max_files:
                        return use
            finally:
                os.close(folder)
    return use


def entries(folder: int, use: TreeUse, *, depth: int = MAX_DEPTH) -> Iterator[TreeEntry]:
    """Yield all entries below the open `folder` without following links; record skipped folders in `use`."""
    with os.scandir(folder) as found:
        names = [entry.name for entry in found]
    for name in names:
        try:
            about = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            continue  # removed meanwhile
        yield TreeEntry(folder, name, about)
        if not stat.S_ISDIR(about.st_mode):
            continue
        if depth == 0:
            use.is_too_deep = True
            continue
        with ExitStack() as stack:
            try:
                deeper = stack.enter_context(_opened(name, folder, about))
            except PermissionError:
                use.locked += 1
                continue
            except OSError:
                continue
            yield from entries(deeper, use, depth=depth - 1)


@contextmanager
def _opened(name: str, folder: int, about: os.stat_result) -> Iterator[int]:
    """Open a folder; an unreadable one that this process owns is made readable until the block exits."""
    with ExitStack() as stack:
        if about.st_uid == os.geteuid() != 0 and about.st_mode & 0o500 != 0o500:
            stack.enter_context(_unlocked(name, folder, about))
        fd = os.open(name, _FOLDER, dir_fd=folder)
        stack.callback(os.close, fd)
        yield fd


@contextmanager
def _unlocked(name: str, folder: int, about: os.stat_result) -> Iterator[None]:
    locked = stat.S_IMODE(about.st_mode)
    unlocked = locked | 0o500
    path_fd = os.open(name, O_PATH | O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    path = Path(f"/proc/self/fd/{path_fd}")
    try:
        path.chmod(unlocked)
        yield
    finally:
        with suppress(OSError):
            if stat.S_IMODE(os.fstat(path_fd).st_mode) == unlocked:  # else the owner has changed the mode
                path.chmod(locked)
        os.close(path_fd)


def remove_tree(root: Path) -> None:
    """Remove a folder recursively, whatever its modes and depth; a missing one is not an error."""
    if os.open not in os.supports_dir_fd:
        shutil.rmtree(root, ignore_errors=True)
        return
    try:
        folder = os.open(root, _FOLDER)
    except FileNotFoundError:
        return
    try:
        while _empty(folder, folder, _STEP):
            pass  # folders below the depth limit were moved to the top: remove them next
    finally:
        os.close(folder)
    root.rmdir()


def _empty(top: int, folder: int, depth: int) -> bool:
    """Empty `folder`; move folders below the depth limit to `top` and return whether any was moved."""
    has_moved = False
    with os.scandir(folder) as found:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    for name, is_dir in names:
        if not is_dir:
            os.unlink(name, dir_fd=folder)
        elif depth == 0:
            os.rename(name, f".{secrets.token_hex(8)}", src_dir_fd=folder, dst_dir_fd=top)
            has_moved = True
        else:
            deeper = _open_unlocked(name, folder)
            try:
                has_moved |= _empty(top, deeper, depth - 1)
            finally:
                os.close(deeper)
            os.rmdir(name, dir_fd=folder)
    return has_moved


def _open_unlocked(name: str, folder: int) -> int:
    """Open a folder; one that this process owns gets mode 0700 first when needed."""
    about = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if about.st_uid == os.geteuid() and about.st_mode & 0o700 != 0o700:
        path_fd = os.open(name, O_PATH | O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        try:
            Path(f"/proc/self/fd/{path_fd}").chmod(0o700)
        finally:
            os.close(path_fd)
    return os.open(name, _FOLDER, dir_fd=folder)
