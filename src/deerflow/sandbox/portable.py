"""File operations for systems that cannot open a file relative to a folder, such as Windows.

Every folder of the path is checked, and no link is followed. A link could be created between check and use,
but only by a program that already runs on this host with the same rights.
"""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from typing_extensions import override

from deerflow.errors import PathRefusedError
from deerflow.sandbox.files import ThreadFiles
from deerflow.sandbox.paths import Place, shown
from deerflow.sandbox.regular_files import OpenFile, explained, refuse_special, write_all
from deerflow.sandbox.searching import Folder

_BINARY = getattr(os, "O_BINARY", 0)
_REPARSE_POINT = getattr(stat, "FILE_ATTRIBUTE_REPARSE_POINT", 0)


class PortableThreadFiles(ThreadFiles):
    """`ThreadFiles` with paths instead of descriptors."""

    @override
    @contextmanager
    def open_folder(self, place: Place) -> Iterator[Folder]:
        with explained(place.virtual):
            folder = _checked(place)
            if not stat.S_ISDIR(folder.stat().st_mode):
                raise NotADirectoryError(20, "not a folder")
        yield str(folder)

    @override
    @contextmanager
    def _opened(self, path: str) -> Iterator[OpenFile]:
        with explained(path):
            host = _checked(self.table.locate(path))
            refuse_special(host.lstat(), path)
            fd = os.open(host, os.O_RDONLY | _BINARY)
        try:
            about = os.fstat(fd)
            refuse_special(about, path)
            yield OpenFile(fd, about.st_size)
        finally:
            os.close(fd)

    @override
    def _replace(self, place: Place, data: bytes) -> None:
        with explained(place.virtual):
            host = _with_parents(place)
            if host.exists():
                refuse_special(host.lstat(), place.virtual)
            draft = host.with_name(f".{secrets.token_hex(8)}.part")
            try:
                draft.write_bytes(data)
                draft.replace(host)
            except BaseException:
                with suppress(OSError):
                    draft.unlink()
                raise

    @override
    def _append(self, place: Place, data: bytes) -> None:
        with explained(place.virtual):
            host = _with_parents(place)
            if host.exists():
                refuse_special(host.lstat(), place.virtual)
            fd = os.open(host, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _BINARY, 0o644)
            try:
                write_all(fd, data)
            finally:
                os.close(fd)


def _with_parents(place: Place) -> Path:
    """Create the missing parent folders and return the host path."""
    parent = _checked(Place(place.mapping, place.parts[:-1]))
    parent.mkdir(parents=True, exist_ok=True)
    return _checked(place)


def _checked(place: Place) -> Path:
    """Return the host path; raise when one of its components is a link."""
    host = place.mapping.host
    for name in place.parts:
        host = host / name
        try:
            about = host.lstat()
        except FileNotFoundError:
            continue
        attributes = getattr(about, "st_file_attributes", 0)
        if stat.S_ISLNK(about.st_mode) or attributes & _REPARSE_POINT:
            raise PathRefusedError(f"{shown(place.virtual)} goes through a link; name the real file")
    return host
