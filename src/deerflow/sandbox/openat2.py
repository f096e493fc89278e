"""Opens files beneath a directory without link races: no link can lead out of it."""

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

_OPENAT2 = 437
"""The system call's number, the same on all supported architectures."""
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08
_ATTEMPTS = 32
"""The kernel returns EAGAIN when a folder was renamed during the lookup."""

O_PATH = getattr(os, "O_PATH", os.O_RDONLY)
O_DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC if sys.platform != "win32" else 0
O_SAFE = (os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY) if sys.platform != "win32" else 0
"""Flags of every open: a FIFO or terminal that replaced a file must not block the open."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(root: int, parts: Sequence[str], flags: int, mode: int = 0o644) -> int:
    """Open `parts` below the directory `root`; raises `OSError` (ELOOP, EXDEV) where a link leads out."""
    path = "/".join(parts) or "."
    if HAS_OPENAT2:
        # with O_PATH the file is not opened for I/O, and the kernel rejects the other flags
        safe = os.O_CLOEXEC if flags & O_PATH else O_SAFE
        return _openat2(root, path, flags | safe, mode if flags & os.O_CREAT else 0)
    return open_by_walking(root, parts, flags, mode)


def open_by_walking(root: int, parts: Sequence[str], flags: int, mode: int = 0o644) -> int:
    """Open `parts` one component at a time without following any link: for kernels without `openat2`."""
    folder = os.open(".", O_PATH | O_DIRECTORY, dir_fd=root)
    try:
        for name in parts[:-1]:
            deeper = os.open(name, O_PATH | O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = deeper
        last = parts[-1] if parts else "."
        return os.open(last, flags | O_SAFE | os.O_NOFOLLOW, mode, dir_fd=folder)
    finally:
        os.close(folder)


def make_folders(root: int, parts: Sequence[str], *, owner: int | None = None) -> int:
    """Create the missing folders of `parts` below `root`; return the last one's descriptor."""
    try:
        return open_beneath(root, parts, O_PATH | O_DIRECTORY)
    except FileNotFoundError:
        if not parts:
            raise
    parent = make_folders(root, parts[:-1], owner=owner)
    try:
        with suppress(FileExistsError):  # created concurrently, or a link: the open below checks
            os.mkdir(parts[-1], 0o755, dir_fd=parent)
        folder = os.open(parts[-1], os.O_RDONLY | O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    finally:
        os.close(parent)
    if owner is not None and os.fstat(folder).st_uid != owner:
        os.fchown(folder, owner, owner)
    return folder


def _openat2(root: int, path: str, flags: int, mode: int) -> int:
    how = _OpenHow(flags, mode, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    for _ in range(_ATTEMPTS):
        found = _LIBC.syscall(_OPENAT2, root, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
        if found >= 0:
            return cast("int", found)
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(number, os.strerror(number), path)


def _has_openat2() -> bool:
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return False
    try:
        root = os.open("/", O_PATH | O_DIRECTORY)
        try:
            os.close(_openat2(root, ".", O_PATH | O_DIRECTORY, 0))
        finally:
            os.close(root)
    except OSError:
        return False
    return True


_LIBC = ctypes.CDLL(None if sys.platform != "win32" else "msvcrt", use_errno=True)
HAS_OPENAT2 = _has_openat2()
