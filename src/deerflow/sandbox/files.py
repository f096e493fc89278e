"""Opens, replaces and appends to files below a thread's folders; no link leads out of them."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from typing_extensions import override

from deerflow.errors import PathRefusedError, SandboxError
from deerflow.sandbox.openat2 import O_DIRECTORY, O_PATH, make_folders, open_beneath
from deerflow.sandbox.paths import PathMapping, PathTable, ResolvedPath, shown
from deerflow.sandbox.searching import Folder

_BINARY = getattr(os, "O_BINARY", 0)
_REPARSE_POINT = getattr(stat, "FILE_ATTRIBUTE_REPARSE_POINT", 0)


class ThreadFiles:
    """Opens and writes the files behind a `PathTable`, never through a link that leads out.

    Args:
        table: The virtual paths of the thread.
        owner: The user who runs the thread's commands, when that is not the user of this process;
            new files and folders are chowned to that user.
    """

    def __init__(self, table: PathTable, *, owner: int | None = None) -> None:
        self.table = table
        self._owner = owner

    @contextmanager
    def open_folder(self, path: ResolvedPath) -> Iterator[Folder]:
        """Open a folder for walking."""
        with sandbox_errors(path.virtual), self._root(path.mapping) as root:
            folder = open_beneath(root, path.parts, os.O_RDONLY | O_DIRECTORY)
        try:
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def open_file(self, path: str) -> Iterator[int]:
        """Open a regular file for reading."""
        resolved = self.table.resolve(path)
        with sandbox_errors(path), self._root(resolved.mapping) as root:
            fd = open_beneath(root, resolved.parts, os.O_RDONLY)
        try:
            _check_regular(os.fstat(fd), path)
            yield fd
        finally:
            os.close(fd)

    def replace(self, path: ResolvedPath, data: bytes) -> None:
        """Replace a file atomically; create missing folders."""
        name = path.parts[-1]
        with sandbox_errors(path.virtual), self._parent(path) as parent:
            mode = _mode_of_replaced(parent, name, path.virtual)
            draft = f".{secrets.token_hex(8)}.part"
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=parent)
            try:
                self._set_owner(fd, mode)
                _write_all(fd, data)
                os.rename(draft, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with suppress(OSError):
                    os.unlink(draft, dir_fd=parent)
                raise
            finally:
                os.close(fd)

    def append(self, path: ResolvedPath, data: bytes) -> None:
        """Append to a file; create it and missing folders."""
        with sandbox_errors(path.virtual), self._parent(path) as parent:
            flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW
            try:
                fd = open_beneath(parent, path.parts[-1:], flags)
            except FileNotFoundError:
                fd = open_beneath(parent, path.parts[-1:], flags | os.O_CREAT | os.O_EXCL, 0o600)
                self._set_owner(fd, 0o644)
            try:
                _check_regular(os.fstat(fd), path.virtual)
                _write_all(fd, data)
            finally:
                os.close(fd)

    @contextmanager
    def _root(self, mapping: PathMapping) -> Iterator[int]:
        root = os.open(mapping.host, O_PATH | O_DIRECTORY)
        try:
            yield root
        finally:
            os.close(root)

    @contextmanager
    def _parent(self, path: ResolvedPath) -> Iterator[int]:
        with self._root(path.mapping) as root:
            parent = make_folders(root, path.parts[:-1], owner=self._owner)
        try:
            yield parent
        finally:
            os.close(parent)

    def _set_owner(self, fd: int, mode: int) -> None:
        if self._owner is not None:
            os.fchown(fd, self._owner, self._owner)
        os.fchmod(fd, mode)


class PortableThreadFiles(ThreadFiles):
    """`ThreadFiles` for systems that cannot open a file relative to a folder, such as Windows.

    Every folder of the path is checked, and no link is followed. A link could be created between check and
    use, but only by a program that already runs on this host with the same rights.
    """

    @override
    @contextmanager
    def open_folder(self, path: ResolvedPath) -> Iterator[Folder]:
        with sandbox_errors(path.virtual):
            folder = _host_path(path)
            if not stat.S_ISDIR(folder.stat().st_mode):
                raise NotADirectoryError(20, "not a folder")
        yield str(folder)

    @override
    @contextmanager
    def open_file(self, path: str) -> Iterator[int]:
        with sandbox_errors(path):
            host = _host_path(self.table.resolve(path))
            _check_regular(host.lstat(), path)
            fd = os.open(host, os.O_RDONLY | _BINARY)
        try:
            _check_regular(os.fstat(fd), path)
            yield fd
        finally:
            os.close(fd)

    @override
    def replace(self, path: ResolvedPath, data: bytes) -> None:
        with sandbox_errors(path.virtual):
            host = self._writable(path)
            draft = host.with_name(f".{secrets.token_hex(8)}.part")
            try:
                draft.write_bytes(data)
                draft.replace(host)
            except BaseException:
                with suppress(OSError):
                    draft.unlink()
                raise

    @override
    def append(self, path: ResolvedPath, data: bytes) -> None:
        with sandbox_errors(path.virtual):
            fd = os.open(self._writable(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT | _BINARY, 0o644)
            try:
                _write_all(fd, data)
            finally:
                os.close(fd)

    def _writable(self, path: ResolvedPath) -> Path:
        """Return the host path of a regular or missing file; create the missing parent folders."""
        parent = _host_path(ResolvedPath(path.mapping, path.parts[:-1]))
        parent.mkdir(parents=True, exist_ok=True)
        host = _host_path(path)
        if host.exists():
            _check_regular(host.lstat(), path.virtual)
        return host


def _host_path(path: ResolvedPath) -> Path:
    """Return the host path; raise when one of its components is a link."""
    host = path.mapping.host
    for name in path.parts:
        host = host / name
        try:
            about = host.lstat()
        except FileNotFoundError:
            continue
        attributes = getattr(about, "st_file_attributes", 0)
        if stat.S_ISLNK(about.st_mode) or attributes & _REPARSE_POINT:
            raise PathRefusedError(f"{shown(path.virtual)} goes through a link; name the real file")
    return host


def _check_regular(about: os.stat_result, path: str) -> None:
    """Raise unless it is a regular file with a single hard link."""
    if stat.S_ISDIR(about.st_mode):
        raise PathRefusedError(f"{shown(path)} is a folder; name a file, or list it with ls")
    if not stat.S_ISREG(about.st_mode):
        raise PathRefusedError(f"{shown(path)} is not a regular file; use a regular file instead")
    if about.st_nlink > 1:
        raise PathRefusedError(
            f"{shown(path)} has more than one name (a hard link); make a copy and use that"
        )


def _mode_of_replaced(parent: int, name: str, path: str) -> int:
    """Return the permissions of the file to be replaced; raise unless it is a regular file."""
    try:
        about = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return 0o644
    if stat.S_ISLNK(about.st_mode):
        raise PathRefusedError(
            f"{shown(path)} is a link; write to the file it stands for, or remove it first"
        )
    _check_regular(about, path)
    return stat.S_IMODE(about.st_mode) & 0o777


@contextmanager
def sandbox_errors(path: str) -> Iterator[None]:
    """Convert an `OSError` into a `SandboxError` with a message for the model."""
    try:
        yield
    except OSError as error:
        raise _explanation(error, path) from error


def _explanation(error: OSError, path: str) -> SandboxError:
    name = shown(path)
    match error.errno:
        case errno.ENOENT:
            return SandboxError(f"{name} does not exist; use ls or glob to find the right path")
        case errno.ELOOP | errno.EXDEV:
            return PathRefusedError(f"{name} goes through a link that is not followed; name the real file")
        case errno.ENOTDIR:
            return PathRefusedError(f"{name} is not a folder, or goes through something that is none")
        case errno.EISDIR | errno.ENOTEMPTY:
            return PathRefusedError(f"{name} is a folder; name a file below it")
        case errno.ENXIO | errno.ENODEV:
            return PathRefusedError(f"{name} is not a regular file; use a regular file instead")
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return PathRefusedError(f"{name} may not be used: {error.strerror}; choose another file")
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return SandboxError(
                f"{name} could not be written: the disk is full; remove files that are not needed"
            )
        case errno.ENAMETOOLONG:
            return PathRefusedError(f"{name} is too long; use a shorter name")
        case _:
            return SandboxError(f"{name} could not be used: {error.strerror}")


def _write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, also when `os.write` is partial."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
