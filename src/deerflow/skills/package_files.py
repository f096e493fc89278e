"""Reads and writes the files of skill packages from untrusted sources: regular files only, within limits.

Archives, git repositories and folders all pass through `PackageWriter`, so that there is one set of rules for
names and sizes.
"""

import os
import re
import stat
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from deerflow.errors import InvalidInputError, TooLargeError

MAX_FILES = 1000
MAX_FILE_BYTES = 10 * 1024 * 1024
MAX_TOTAL_BYTES = 50 * 1024 * 1024
MAX_DEPTH = 16
MAX_PATH_CHARS = 512
BLOCK_BYTES = 1 << 16
LITTER = frozenset({"__MACOSX", ".DS_Store", "Thumbs.db", "__pycache__", ".git"})
"""Files and folders that programs leave behind; they are never part of a package."""
_RESERVED = re.compile(r"(?i:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")
"""Names of devices on Windows, with any extension."""


@dataclass(frozen=True, slots=True)
class PackageFile:
    """One regular file of a package in a folder."""

    path: PurePosixPath
    """Path relative to the package."""
    size: int
    is_executable: bool


class PackagePaths:
    """The paths of one package; each is checked when it is added."""

    def __init__(self) -> None:
        self._files: set[tuple[str, ...]] = set()
        self._spellings: dict[tuple[str, ...], tuple[str, ...]] = {}

    def add(self, name: str) -> PurePosixPath:
        """Return the path of a file; raise `InvalidInputError` for one that is unsafe or collides."""
        path = checked_path(name)
        if len(self._files) >= MAX_FILES:
            raise TooLargeError(f"the package has more than {MAX_FILES:,} files")
        for end in range(1, len(path.parts) + 1):
            self._add_part(path.parts[:end], is_file=end == len(path.parts))
        return path

    def _add_part(self, parts: tuple[str, ...], *, is_file: bool) -> None:
        folded = tuple(map(_folded, parts))
        is_new = folded not in self._spellings
        shown = "/".join(parts)
        if self._spellings.setdefault(folded, parts) != parts:
            other = "/".join(self._spellings[folded])
            raise InvalidInputError(f"the package has '{other}' and '{shown}', one name on some systems")
        if is_file and not is_new:
            raise InvalidInputError(f"the package has '{shown}' twice")
        if not is_file and folded in self._files:
            raise InvalidInputError(f"the package has '{shown}' as a file and as a folder")
        if is_file:
            self._files.add(folded)


class PackageWriter:
    """Writes a package below a new folder, and counts what it writes: declared sizes may be false."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._total = 0

    def write(self, path: PurePosixPath, blocks: Iterable[bytes], *, is_executable: bool) -> None:
        """Write one file with a path from `PackagePaths.add`."""
        file = self._target / path
        file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with file.open("xb") as out:
            for block in bounded(blocks, path):
                self._total += len(block)
                if self._total > MAX_TOTAL_BYTES:
                    raise TooLargeError(f"the package has more than {MAX_TOTAL_BYTES:,} bytes")
                out.write(block)
        file.chmod(0o755 if is_executable else 0o644)


def bounded(blocks: Iterable[bytes], path: PurePosixPath) -> Iterator[bytes]:
    """Yield the contents of one file; raise `TooLargeError` over the limit."""
    size = 0
    for block in blocks:
        size += len(block)
        if size > MAX_FILE_BYTES:
            raise TooLargeError(f"'{path}' has more than {MAX_FILE_BYTES:,} bytes")
        yield block


def checked_path(name: str) -> PurePosixPath:
    """Parse the path of a file in a package; raise `InvalidInputError` unless every system can hold it."""
    path = PurePosixPath(name)
    is_plain = name.isprintable() and "\\" not in name and ":" not in name and len(name) <= MAX_PATH_CHARS
    is_inside = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
    if not is_plain or not is_inside or len(path.parts) > MAX_DEPTH or not all(map(_is_name, path.parts)):
        raise InvalidInputError(f"the package has a file {name[:200]!r}, which is no path inside a folder")
    return path


def is_litter(path: PurePosixPath) -> bool:
    """Return whether a path is not part of a package."""
    return bool(LITTER.intersection(path.parts))


def package_files(folder: Path) -> list[PackageFile]:
    """List the files of the package in a folder by path; raise on links, devices and unsafe names."""
    paths, found = PackagePaths(), []
    for place, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if name not in LITTER]
        for name in (*folders, *files):
            entry = Path(place, name)
            relative = entry.relative_to(folder).as_posix()
            about = entry.lstat()
            if name in LITTER or stat.S_ISDIR(about.st_mode):
                continue
            if not stat.S_ISREG(about.st_mode):
                raise InvalidInputError(f"'{relative}' in {folder} is a link or device; only files are taken")
            is_executable = bool(about.st_mode & stat.S_IXUSR)
            found.append(PackageFile(paths.add(relative), about.st_size, is_executable))
    return sorted(found, key=lambda file: file.path.as_posix())


def copy_package(folder: Path, target: Path) -> None:
    """Copy the package in a folder to a new folder."""
    writer = PackageWriter(target)
    for file in package_files(folder):
        writer.write(file.path, read_blocks(folder / file.path), is_executable=file.is_executable)


def read_blocks(file: Path) -> Iterator[bytes]:
    """Yield the contents of a regular file; a link put into its place meanwhile is not followed."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InvalidInputError(f"{file} is no regular file")
        while block := opened.read(BLOCK_BYTES):
            yield block


def _is_name(part: str) -> bool:
    return not part.endswith((".", " ")) and len(part.encode()) <= 255 and not _RESERVED.fullmatch(part)


def _folded(part: str) -> str:
    """Return a name as file systems compare it that ignore case or the encoding of accents."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", part).casefold())


def _raise(error: OSError) -> None:
    raise InvalidInputError(f"'{error.filename}' cannot be read: {error.strerror}") from error
