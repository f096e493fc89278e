"""Installs skills from untrusted ZIP archives named `*.skill`.

Every part of an archive is checked: paths outside the target, links, encrypted or huge members, and members
that unpack to more than their declared size are rejected.
"""

import io
import lzma
import os
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from typing_extensions import override

from deerflow.errors import ConflictError, InvalidInputError, NotFoundError, TooLargeError
from deerflow.skills.loader import SKILL_FILE, Skill, Skills, read_skill

SUFFIX = ".skill"
MAX_ARCHIVE_BYTES = 20 * 1024 * 1024
MAX_MEMBERS = 1000
MAX_MEMBER_BYTES = 10 * 1024 * 1024
MAX_TOTAL_BYTES = 50 * 1024 * 1024
_MAX_INDEX_BYTES = 1024 * 1024
_BLOCK = 1 << 16
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
"""Other compression methods may allocate gigabytes of memory to unpack a few bytes."""
_BROKEN = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error,
    EOFError, NotImplementedError, OSError, RuntimeError, ValueError,
)  # fmt: skip
_LITTER = frozenset({"__MACOSX", ".DS_Store"})


def read_member(file: BinaryIO, name: str) -> bytes:
    """Return one file of an archive; `name` is relative to the skill's folder or to the archive's root."""
    with _opened(file) as archive:
        members = _members(archive)
        folder = _skill_folder(members)
        info = members.get(PurePosixPath(name)) or members.get(folder / name)
        if info is None:
            raise NotFoundError("file of the archive", name[:200])
        return b"".join(_blocks(archive, info))


def install_skill(file: BinaryIO, root: Path) -> Skill:
    """Unpack an archive to `root/custom/{name}` atomically, and return the skill."""
    custom = root / "custom"
    custom.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".install-", dir=custom))  # dot folders are not scanned
    try:
        with _opened(file) as archive:
            _unpack(archive, draft / "skill")
        skill = _read(draft / "skill" / SKILL_FILE)
        _refuse_known(skill.name, root)
        target = custom / skill.name
        try:
            (draft / "skill").rename(target)
        except OSError as error:  # it was created concurrently
            raise ConflictError(
                f"the skill '{skill.name}' is there already; remove {target} first"
            ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return _read(target / SKILL_FILE)


def _read(file: Path) -> Skill:
    try:
        return read_skill(file, category="custom", path=str(file))
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"the archive's {SKILL_FILE} cannot be used: {error}") from error


def _refuse_known(name: str, root: Path) -> None:
    known = next((skill for skill in Skills(root).all() if skill.name == name), None)
    if known is not None:
        raise ConflictError(
            f"there is a {known.category} skill '{name}' already; remove it or rename this one"
        )
    if os.path.lexists(root / "custom" / name):
        raise ConflictError(f"the folder {root / 'custom' / name} is there already; remove it first")


class _BoundedFile(io.BufferedReader):
    """Limits the size of one read: `zipfile` reads the index at once, in the size the archive declares."""

    @override
    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _MAX_INDEX_BYTES:
            raise zipfile.BadZipFile(f"its index is larger than {_MAX_INDEX_BYTES:,} bytes")
        return super().read(size)


@contextmanager
def _opened(file: BinaryIO) -> Iterator[zipfile.ZipFile]:
    if file.seek(0, os.SEEK_END) > MAX_ARCHIVE_BYTES:
        raise TooLargeError(f"the archive has more than {MAX_ARCHIVE_BYTES:,} bytes")
    file.seek(0)
    bounded = _BoundedFile(io.FileIO(os.dup(file.fileno())))
    try:
        with bounded, zipfile.ZipFile(bounded) as archive:
            yield archive
    except _BROKEN as error:
        raise InvalidInputError(f"the archive cannot be unpacked as a ZIP: {error}") from error


def _members(archive: zipfile.ZipFile) -> Mapping[PurePosixPath, zipfile.ZipInfo]:
    """Return the files of an archive by path; raise `InvalidInputError` for an unsafe one."""
    infos = archive.infolist()
    if len(infos) > MAX_MEMBERS:
        raise TooLargeError(f"the archive has {len(infos):,} members; at most {MAX_MEMBERS:,} are taken")
    found: dict[PurePosixPath, zipfile.ZipInfo] = {}
    for info in infos:
        path = _checked_path(info)
        if info.is_dir() or _LITTER.intersection(path.parts):
            continue
        if path in found:
            raise InvalidInputError(f"the archive has '{path}' twice")
        found[path] = info
    return found


def _checked_path(info: zipfile.ZipInfo) -> PurePosixPath:
    name, shown = info.orig_filename, info.orig_filename[:200]
    path = PurePosixPath(name)
    is_plain = name.isprintable() and "\\" not in name and len(name) <= 512 and len(path.parts) <= 16
    if not is_plain or not path.parts or path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
        raise InvalidInputError(f"the archive has a member {shown!r}, which is no path inside a folder")
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise InvalidInputError(f"the archive's member {shown!r} is a link or device; only files are taken")
    if info.flag_bits & 1:
        raise InvalidInputError(f"the archive's member {shown!r} is encrypted")
    if info.compress_type not in _METHODS:
        raise InvalidInputError(f"the archive's member {shown!r} is packed in an unusual way; use 'deflate'")
    return path


def _skill_folder(members: Mapping[PurePosixPath, zipfile.ZipInfo]) -> PurePosixPath:
    """Return the folder of the only `SKILL.md`: the root, or the only folder in it."""
    tops = {path.parts[0] for path in members}
    if PurePosixPath(SKILL_FILE) in members or len(tops) != 1:
        return PurePosixPath()
    return PurePosixPath(tops.pop())


def _unpack(archive: zipfile.ZipFile, target: Path) -> None:
    members = _members(archive)
    folder = _skill_folder(members)
    if folder / SKILL_FILE not in members:
        raise InvalidInputError(f"the archive has no {SKILL_FILE} at its root or in its only folder")
    total = 0
    for path, info in members.items():
        file = target / path.relative_to(folder)
        file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with file.open("xb") as out:
            for block in _blocks(archive, info):
                total += len(block)
                if total > MAX_TOTAL_BYTES:
                    raise TooLargeError(f"the archive unpacks to more than {MAX_TOTAL_BYTES:,} bytes")
                out.write(block)
        file.chmod(0o755 if info.external_attr >> 16 & 0o100 else 0o644)


def _blocks(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield a member's contents and count the bytes: the declared size may be false."""
    total = 0
    with archive.open(info) as member:
        while block := member.read(_BLOCK):
            total += len(block)
            if total > MAX_MEMBER_BYTES:
                raise TooLargeError(f"'{info.filename[:200]}' has more than {MAX_MEMBER_BYTES:,} bytes")
            yield block
