"""Unpacks skills from untrusted archives, and packs them: `*.skill`, which is ZIP, and gzipped tar.

Every part of an archive is checked: paths outside the target, links, encrypted, overlapping or huge members,
data before or after the archive, and members that unpack to more than their declared size are rejected.
"""

import gzip
import io
import os
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from typing_extensions import override

from deerflow.errors import InvalidInputError, NotFoundError, TooLargeError
from deerflow.skills import package_files as limits
from deerflow.skills.package_files import (
    BLOCK_BYTES,
    PackagePaths,
    PackageWriter,
    bounded,
    is_litter,
    package_files,
    read_blocks,
)
from deerflow.skills.skill import SKILL_FILE

SUFFIX = ".skill"
MAX_ARCHIVE_BYTES = 52 * 1024 * 1024
"""Allows the largest package without compression, which is how `pack` writes it."""
_MAX_INDEX_BYTES = 1024 * 1024
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
"""Other compression methods may allocate gigabytes of memory to unpack a few bytes."""
_BROKEN = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, struct.error,
    EOFError, NotImplementedError, OSError, RuntimeError, ValueError,
)  # fmt: skip
_GZIP = b"\x1f\x8b"
_ZIP_END = b"PK\5\6"
_ZIP_END_BYTES = 22
_ZIP_HEADER_BYTES = 30
_EARLIEST = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class _Member:
    """One file of an archive."""

    name: str
    is_executable: bool
    open: Callable[[], IO[bytes]]

    def blocks(self) -> Iterator[bytes]:
        """Yield the contents."""
        with self.open() as file:
            while block := file.read(BLOCK_BYTES):
                yield block


def unpack(file: BinaryIO, target: Path) -> None:
    """Unpack the skill in an archive to a new folder; part of it may be there after an error."""
    with _opened(file) as members:
        folder = _skill_folder(members)
        if folder / SKILL_FILE not in members:
            raise InvalidInputError(f"the archive has no {SKILL_FILE} at its root or in its only folder")
        writer = PackageWriter(target)
        for path, member in members.items():
            place = path.relative_to(folder)
            writer.write(place, member.blocks(), is_executable=member.is_executable)


def read_member(file: BinaryIO, name: str) -> bytes:
    """Return one file of an archive; `name` is relative to the skill's folder or to the archive's root."""
    with _opened(file) as members:
        path = PurePosixPath(name)
        member = members.get(path) or members.get(_skill_folder(members) / path)
        if member is None:
            raise NotFoundError("file of the archive", name[:200])
        return b"".join(bounded(member.blocks(), path))


def pack(folder: Path, *, top: str | None) -> bytes:
    """Return the skill in a folder as a ZIP archive; the same files always give the same bytes.

    Nothing is compressed: compressed bytes depend on the version of the compression library.

    Args:
        top: The only folder at the archive's root; None puts `SKILL.md` itself there.
    """
    files = package_files(folder)
    total = sum(file.size for file in files)
    if total > limits.MAX_TOTAL_BYTES:
        raise TooLargeError(f"{folder} has {total:,} bytes; at most {limits.MAX_TOTAL_BYTES:,} can be packed")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for file in files:
            info = zipfile.ZipInfo(str(PurePosixPath(top or "") / file.path), _EARLIEST)
            info.create_system = 3  # Unix, on every system
            info.external_attr = (stat.S_IFREG | (0o755 if file.is_executable else 0o644)) << 16
            archive.writestr(info, b"".join(bounded(read_blocks(folder / file.path), file.path)))
    return packed.getvalue()


@contextmanager
def _opened(file: BinaryIO) -> Iterator[Mapping[PurePosixPath, _Member]]:
    """Open an archive and check it; yield its files by path, without litter."""
    if file.seek(0, os.SEEK_END) > MAX_ARCHIVE_BYTES:
        raise TooLargeError(f"the archive has more than {MAX_ARCHIVE_BYTES:,} bytes")
    file.seek(0)
    is_tar = file.read(len(_GZIP)) == _GZIP
    file.seek(0)
    try:
        with _tar_members(file) if is_tar else _zip_members(file) as members:
            paths = PackagePaths()
            found = {paths.add(member.name): member for member in members}
            yield {path: member for path, member in found.items() if not is_litter(path)}
    except _BROKEN as error:
        kind = "gzipped tar" if is_tar else "ZIP"
        raise InvalidInputError(
            f"the archive cannot be unpacked as a {kind}: {error}; "
            "a skill is packed as .skill, .zip or .tar.gz"
        ) from error


class _BoundedFile(io.BufferedReader):
    """Limits the size of one read: the libraries read indexes at once, in the size the archive declares."""

    @override
    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _MAX_INDEX_BYTES:
            raise zipfile.BadZipFile(f"its index is larger than {_MAX_INDEX_BYTES:,} bytes")
        return super().read(size)


@contextmanager
def _zip_members(file: BinaryIO) -> Iterator[Sequence[_Member]]:
    with (
        _BoundedFile(io.FileIO(os.dup(file.fileno()))) as bounded_file,
        zipfile.ZipFile(bounded_file) as archive,
    ):
        _check_zip_layout(archive, bounded_file)
        yield [_zip_member(archive, info) for info in archive.infolist() if not info.is_dir()]


def _check_zip_layout(archive: zipfile.ZipFile, file: BinaryIO) -> None:
    """Refuse bytes of two members at once, and data that other programs would read as something else."""
    infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
    for info in infos:
        _check_zip_info(info)
    if infos and infos[0].header_offset != 0:
        raise InvalidInputError("the archive has data before its first member; pack it anew")
    ends = [*(info.header_offset for info in infos[1:]), archive.start_dir]
    for info, end in zip(infos, ends, strict=False):
        if info.header_offset + _ZIP_HEADER_BYTES + info.compress_size > end:
            raise InvalidInputError(f"the archive's member {info.filename[:200]!r} overlaps another one")
    file.seek(-(_ZIP_END_BYTES + len(archive.comment)), os.SEEK_END)
    if file.read(len(_ZIP_END)) != _ZIP_END:
        raise InvalidInputError("the archive has data after its end; pack it anew")


def _check_zip_info(info: zipfile.ZipInfo) -> None:
    shown = info.orig_filename[:200]
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise InvalidInputError(f"the archive's member {shown!r} is a link or device; only files are taken")
    if info.flag_bits & 1:
        raise InvalidInputError(f"the archive's member {shown!r} is encrypted")
    if info.compress_type not in _METHODS:
        raise InvalidInputError(f"the archive's member {shown!r} is packed in an unusual way; use 'deflate'")
    limits.checked_path(info.orig_filename)  # also of folders, which are not unpacked themselves


def _zip_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> _Member:
    return _Member(info.orig_filename, bool(info.external_attr >> 16 & 0o100), lambda: archive.open(info))


@contextmanager
def _tar_members(file: BinaryIO) -> Iterator[Sequence[_Member]]:
    with tempfile.TemporaryFile() as plain:
        most = limits.MAX_TOTAL_BYTES + limits.MAX_FILES * 4 * tarfile.BLOCKSIZE
        with gzip.open(file) as packed:
            while block := packed.read(BLOCK_BYTES):
                if plain.tell() + len(block) > most:
                    raise TooLargeError(f"the archive unpacks to more than {most:,} bytes")
                plain.write(block)
        plain.seek(0)
        with (
            _BoundedFile(io.FileIO(os.dup(plain.fileno()))) as bounded_file,
            tarfile.open(fileobj=bounded_file, mode="r:") as archive,
        ):
            yield list(_tar_files(archive))


def _tar_files(archive: tarfile.TarFile) -> Iterator[_Member]:
    for number, info in enumerate(archive):
        if number > 2 * limits.MAX_FILES:  # folders count too: reading them takes time
            raise TooLargeError(f"the archive has more than {2 * limits.MAX_FILES:,} members")
        if info.isdir() and not PurePosixPath(info.name).parts:
            continue  # the archive's root
        limits.checked_path(info.name)
        if info.isdir():
            continue
        if not info.isreg() or info.issparse():
            shown = info.name[:200]
            raise InvalidInputError(
                f"the archive's member {shown!r} is a link or device; only files are taken"
            )
        yield _tar_member(archive, info)


def _tar_member(archive: tarfile.TarFile, info: tarfile.TarInfo) -> _Member:
    def opened() -> IO[bytes]:
        found = archive.extractfile(info)
        assert found is not None  # it is a regular file
        return found

    return _Member(info.name, bool(info.mode & 0o100), opened)


def _skill_folder(members: Mapping[PurePosixPath, _Member]) -> PurePosixPath:
    """Return the folder of the only `SKILL.md`: the root, or the only folder in it."""
    tops = {path.parts[0] for path in members}
    if PurePosixPath(SKILL_FILE) in members or len(tops) != 1:
        return PurePosixPath()
    return PurePosixPath(tops.pop())
