"""Lists all output files of an agent, or streams them as one ZIP.

Folders are opened by descriptor and links are skipped, so that no file from outside gets in, even if the
agent changes its files meanwhile.
"""

import os
import re
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from deerflow.domain import ThreadFolders
from deerflow.errors import TooLargeError
from deerflow.sandbox.openat2 import O_DIRECTORY, open_beneath

OUTPUTS = "/mnt/user-data/outputs"
MAX_FILES = 10_000
MAX_DEPTH = 32
MAX_BYTES = 4 * 1024**3
_BLOCK = 1 << 18
_ODD = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|]')
"""Characters that are special in file names on some system."""


@dataclass(frozen=True, slots=True)
class Output:
    """One output file."""

    parts: tuple[str, ...]
    size: int
    modified: float

    @property
    def path(self) -> str:
        """Its path in the sandbox."""
        return "/".join([OUTPUTS, *self.parts])


def list_outputs(folders: ThreadFolders) -> list[Output]:
    """Return the regular, non-hidden files below the outputs folder, sorted by path."""
    with _outputs(folders) as root:
        return [] if root is None else list(islice(_walk(root, ()), MAX_FILES))


def check_bundle(folders: ThreadFolders) -> None:
    """Raise `TooLargeError` if a ZIP could not contain all outputs."""
    found = list_outputs(folders)
    if len(found) == MAX_FILES or sum(each.size for each in found) > MAX_BYTES:
        most = f"{MAX_FILES:,} files and {MAX_BYTES / 1024**3:g} GiB"
        raise TooLargeError(f"the outputs are more than one ZIP takes ({most}); fetch files one by one")


def zip_outputs(folders: ThreadFolders) -> Iterator[bytes]:
    """Yield a ZIP of the outputs in chunks; files that were deleted or changed their type are skipped."""
    sink = _Sink()
    left = MAX_BYTES
    with _outputs(folders) as root, zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for found in list_outputs(folders):
            fd = None if root is None else _open(root, found.parts)
            if fd is None:
                continue
            with os.fdopen(fd, "rb") as file, archive.open(_info(found), "w", force_zip64=True) as entry:
                while left > 0 and (block := file.read(min(_BLOCK, left))):
                    left -= len(block)
                    entry.write(block)
                    yield from sink.take()
            yield from sink.take()
    yield from sink.take()


class _Sink:
    """The file object that the ZIP is written to; buffers written bytes until they are taken."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []

    def write(self, data: Any) -> int:
        self._waiting.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing: there is no underlying file."""

    def close(self) -> None:
        """Do nothing: buffered bytes can still be taken."""

    def take(self) -> Iterator[bytes]:
        waiting, self._waiting = self._waiting, []
        if waiting:
            yield b"".join(waiting)


@contextmanager
def _outputs(folders: ThreadFolders) -> Iterator[int | None]:
    """Open the outputs folder; None when it is missing or not a folder."""
    try:
        above = os.open(folders.user_data, os.O_RDONLY | O_DIRECTORY)
    except OSError:
        yield None
        return
    try:
        root = open_beneath(above, [folders.outputs.name], os.O_RDONLY | O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        root = None
    finally:
        os.close(above)
    try:
        yield root
    finally:
        if root is not None:
            os.close(root)


def _walk(folder: int, above: tuple[str, ...]) -> Iterator[Output]:
    """Yield the files below a folder, sorted by path."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if not entry.name.startswith("."))
    for name in names[:MAX_FILES]:
        try:
            about = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(about.st_mode) and about.st_nlink == 1:
                yield Output((*above, name), about.st_size, about.st_mtime)
            elif stat.S_ISDIR(about.st_mode) and len(above) < MAX_DEPTH:
                deeper = os.open(name, os.O_RDONLY | O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                try:
                    yield from _walk(deeper, (*above, name))
                finally:
                    os.close(deeper)
        except OSError:
            continue  # deleted, replaced by a link, or not readable


def _open(root: int, parts: tuple[str, ...]) -> int | None:
    try:
        fd = open_beneath(root, parts, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    about = os.fstat(fd)
    if stat.S_ISREG(about.st_mode) and about.st_nlink == 1:
        return fd
    os.close(fd)
    return None


def _info(found: Output) -> zipfile.ZipInfo:
    """Return a file's ZIP entry, under a name that is safe on every system."""
    name = "/".join(_ODD.sub("_", part.encode(errors="replace").decode()) for part in found.parts)
    moment = datetime.fromtimestamp(max(found.modified, _EARLIEST), UTC)
    info = zipfile.ZipInfo(name, moment.timetuple()[:6])
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return info


_EARLIEST = 315_619_200.0
"""ZIP cannot store times before 1980."""
