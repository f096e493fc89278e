"""Opens, edits, lists and zips the files that an agent made; never follows a link out of the thread's folder.

Folders are opened by descriptor and links are skipped, so that no file from outside gets in, even if the
agent changes its files meanwhile.
"""

import hashlib
import mimetypes
import os
import re
import secrets
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from deerflow.domain import ThreadFolders
from deerflow.errors import (
    ChangedError,
    NotFoundError,
    PathRefusedError,
    TooLargeError,
    UnsupportedTypeError,
)
from deerflow.files.snapshots import opened
from deerflow.sandbox.openat2 import O_DIRECTORY, open_beneath
from deerflow.skills import SKILL_SUFFIX, read_member

VIRTUAL_ROOT = "/mnt/user-data"
_ACTIVE = re.compile(r"text/html|.*[/+]xml")
"""Types that a browser would execute: HTML, and all XML, which may contain HTML or SVG."""
_BLOCK = 1 << 20
_MAX_HASHED = 32 * 1024 * 1024
OUTPUTS = f"{VIRTUAL_ROOT}/outputs"
MAX_FILES = 10_000
MAX_DEPTH = 32
MAX_BYTES = 4 * 1024**3
_EARLIEST = 315_619_200.0
"""ZIP cannot store times before 1980."""
_ODD = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|]')
"""Characters that are special in file names on some system."""
MAX_EDITED = 2 * 1024 * 1024
"""The size in bytes of the largest file that clients can edit."""


@dataclass(frozen=True, slots=True)
class ArtifactFile:
    """An open file of a thread; the caller closes it (`contextlib.closing`)."""

    fd: int
    name: str
    size: int
    modified_ns: int
    media_type: str

    @property
    def is_active(self) -> bool:
        return _ACTIVE.fullmatch(self.media_type) is not None

    def close(self) -> None:
        os.close(self.fd)

    def tag(self) -> str:
        """Return the ETag: the SHA-256, or a weak tag for a file too large to hash."""
        if self.size > _MAX_HASHED:
            return f'W/"{self.size:x}-{self.modified_ns:x}"'
        total = hashlib.sha256()
        for start in range(0, self.size, _BLOCK):
            total.update(os.pread(self.fd, _BLOCK, start))
        return f'"{total.hexdigest()}"'

    def read(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from `start` up to, not including, `end`."""
        while start < end:
            block = os.pread(self.fd, min(_BLOCK, end - start), start)
            if not block:
                return
            yield block
            start += len(block)


def open_artifact(folders: ThreadFolders, path: str) -> ArtifactFile:
    """Open `/mnt/user-data/…` of a thread."""
    parts = _parts(path)
    try:
        with opened(folders.user_data) as root:
            fd = _open(root, parts, path)
    except FileNotFoundError as error:
        raise NotFoundError("artifact", path[:200]) from error
    entry = os.fstat(fd)
    if not stat.S_ISREG(entry.st_mode):
        os.close(fd)
        raise NotFoundError("artifact", path[:200])
    if entry.st_nlink > 1:
        os.close(fd)
        raise PathRefusedError(f"'{path[:200]}' has more than one name (a hard link); make a copy of it")
    media_type = mimetypes.guess_type(parts[-1])[0] or "application/octet-stream"
    return ArtifactFile(fd, parts[-1], entry.st_size, entry.st_mtime_ns, media_type)


def open_artifact_or_member(folders: ThreadFolders, path: str) -> ArtifactFile:
    """Open a file of a thread, or with `…/x.skill/SKILL.md` a file in a skill archive."""
    try:
        return open_artifact(folders, path)
    except NotFoundError:
        archive, separator, member = path.partition(f"{SKILL_SUFFIX}/")
        if not separator or not member:
            raise
    packed = open_artifact(folders, archive + SKILL_SUFFIX)
    with closing(packed), os.fdopen(os.dup(packed.fd), "rb") as file:
        content = read_member(file, member)
    with tempfile.TemporaryFile() as unpacked:
        unpacked.write(content)
        unpacked.flush()
        name = PurePosixPath(member).name
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return ArtifactFile(os.dup(unpacked.fileno()), name, len(content), packed.modified_ns, media_type)


def replace_artifact(folders: ThreadFolders, path: str, content: str, *, expected: str) -> str:
    """Replace a text file atomically with `content`; return its SHA-256.

    Args:
        expected: The SHA-256 of the file as the caller read it; any other raises `ChangedError`.
    """
    data = _encoded(content)
    with closing(open_artifact(folders, path)) as found:
        if found.size > MAX_EDITED:
            raise UnsupportedTypeError(f"'{path[:200]}' is too large to be edited; download it instead")
        present = b"".join(found.read(0, found.size))
        if hashlib.sha256(present).hexdigest() != expected:
            raise ChangedError(f"'{path[:200]}' has changed since it was read; read it again, then edit it")
        if not _is_text(present):
            raise UnsupportedTypeError(f"'{path[:200]}' is no text and cannot be edited; replace it instead")
        about = os.fstat(found.fd)
    _put(folders, _parts(path), data, about)
    return hashlib.sha256(data).hexdigest()


def _encoded(content: str) -> bytes:
    try:
        data = content.encode()
    except UnicodeEncodeError as error:
        raise UnsupportedTypeError("content has half a surrogate pair; send whole characters") from error
    if len(data) > MAX_EDITED:
        raise TooLargeError(f"content has {len(data):,} bytes; at most {MAX_EDITED:,} can be written")
    return data


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def _put(folders: ThreadFolders, parts: list[str], data: bytes, old: os.stat_result) -> None:
    """Write a temporary file and rename it, so that readers see the old text or the new one."""
    with opened(folders.user_data) as root:
        folder = open_beneath(root, parts[:-1], os.O_RDONLY | O_DIRECTORY)
    draft = f".{secrets.token_hex(8)}.part"
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
        with os.fdopen(fd, "wb") as file:
            if os.geteuid() == 0:  # the thread's commands may run as another user
                os.fchown(fd, old.st_uid, old.st_gid)
            os.fchmod(fd, stat.S_IMODE(old.st_mode) & 0o777)
            file.write(data)
        os.rename(draft, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=folder)
        os.close(folder)


def _open(root: int, parts: list[str], path: str) -> int:
    try:
        return open_beneath(root, parts, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError("artifact", path[:200]) from error
    except OSError as error:
        raise PathRefusedError(f"'{path[:200]}' cannot be opened: {error.strerror}") from error


def _parts(path: str) -> list[str]:
    pure = PurePosixPath("/" + path.lstrip("/"))
    if ".." in pure.parts or "\x00" in path or not str(pure).startswith(VIRTUAL_ROOT + "/"):
        raise PathRefusedError(f"'{path[:200]}' is not below {VIRTUAL_ROOT}")
    return list(pure.relative_to(VIRTUAL_ROOT).parts)


@dataclass(frozen=True, slots=True)
class Output:
    """One output file."""

    parts: tuple[str, ...]
    size: int
    modified: float

    @property
    def path(self) -> str:
        return "/".join([OUTPUTS, *self.parts])


def list_outputs(folders: ThreadFolders) -> list[Output]:
    """Return the regular, non-hidden files below the outputs folder, sorted by path."""
    with _outputs(folders) as root:
        return [] if root is None else list(islice(_walk(root, ()), MAX_FILES))


def check_zip_size(folders: ThreadFolders) -> None:
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
            fd = None if root is None else _open_output(root, found.parts)
            if fd is None:
                continue
            with os.fdopen(fd, "rb") as file, archive.open(_zip_info(found), "w", force_zip64=True) as entry:
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
        with opened(folders.user_data) as above:
            root = open_beneath(above, [folders.outputs.name], os.O_RDONLY | O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        yield None
        return
    try:
        yield root
    finally:
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


def _open_output(root: int, parts: tuple[str, ...]) -> int | None:
    try:
        fd = open_beneath(root, parts, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    about = os.fstat(fd)
    if stat.S_ISREG(about.st_mode) and about.st_nlink == 1:
        return fd
    os.close(fd)
    return None


def _zip_info(found: Output) -> zipfile.ZipInfo:
    """Return a file's ZIP entry, under a name that is safe on every system."""
    name = "/".join(_ODD.sub("_", part.encode(errors="replace").decode()) for part in found.parts)
    moment = datetime.fromtimestamp(max(found.modified, _EARLIEST), UTC)
    info = zipfile.ZipInfo(name, moment.timetuple()[:6])
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return info
