"""Files that people add to a thread: stored whole or not at all, never through a link."""

import contextlib
import os
import re
import secrets
import stat
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from deerflow.config import UploadSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import InvalidInputError, NotFoundError, TooLargeError
from deerflow.sandbox.beneath import O_DIRECTORY, open_beneath

VIRTUAL_UPLOADS = "/mnt/user-data/uploads"
_STAGING = ".staging-"
_NAME_BYTES = 255


@dataclass(frozen=True, slots=True)
class Upload:
    """One uploaded file."""

    thread_id: str
    filename: str
    size: int
    modified: float

    def to_dict(self) -> dict[str, Any]:
        """Return the upload as clients see it."""
        path = f"{VIRTUAL_UPLOADS}/{self.filename}"
        return {
            "filename": self.filename,
            "size": self.size,
            "path": path,
            "virtual_path": path,
            "artifact_url": f"/api/threads/{self.thread_id}/artifacts{quote(path)}",
            "extension": PurePosixPath(self.filename).suffix,
            "modified": self.modified,
        }


async def save_upload(
    folders: ThreadFolders, filename: str, chunks: AsyncIterator[bytes], limits: UploadSettings
) -> Upload:
    """Store one file; a name that is taken gets a number, so that nothing is overwritten."""
    name = checked_name(filename)
    with _uploads(folders) as root:
        staging = f"{_STAGING}{secrets.token_hex(8)}"
        try:
            size = await _write(root, staging, chunks, name, limits.max_file_size)
            final = _put_in_place(root, staging, name)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(staging, dir_fd=root)
        return _describe(root, folders.thread_id, final, size)


def list_uploads(folders: ThreadFolders) -> list[Upload]:
    """Return the thread's uploads by name."""
    with _uploads(folders) as root:
        with os.scandir(root) as entries:
            names = sorted(entry.name for entry in entries if not entry.name.startswith(_STAGING))
        found = [(name, os.stat(name, dir_fd=root, follow_symlinks=False)) for name in names]
        return [
            Upload(folders.thread_id, name, entry.st_size, entry.st_mtime)
            for name, entry in found
            if stat.S_ISREG(entry.st_mode)
        ]


def delete_upload(folders: ThreadFolders, filename: str) -> None:
    """Delete one upload."""
    name = checked_name(filename)
    with _uploads(folders) as root:
        try:
            os.unlink(name, dir_fd=root)
        except (FileNotFoundError, IsADirectoryError) as error:
            raise NotFoundError("upload", name) from error


def checked_name(filename: str) -> str:
    """Return a plain file name, or say what is wrong with it."""
    name = filename.strip()
    problem = None
    if not name or name in (".", ".."):
        problem = "it is empty"
    elif "/" in name or "\\" in name:
        problem = "it has a slash; send the name alone"
    elif re.search(r"[\x00-\x1f\x7f]", name):
        problem = "it has control characters"
    elif len(name.encode("utf-8", "replace")) > _NAME_BYTES:
        problem = f"it is longer than {_NAME_BYTES} bytes"
    elif name.startswith(_STAGING):
        problem = "names like this are kept for uploads in progress"
    if problem:
        raise InvalidInputError(f"file name '{name[:80]!r}' cannot be used: {problem}")
    return name


@contextlib.contextmanager
def _uploads(folders: ThreadFolders) -> Iterator[int]:
    folders.create()
    root = os.open(folders.uploads, os.O_RDONLY | O_DIRECTORY)
    try:
        yield root
    finally:
        os.close(root)


async def _write(root: int, staging: str, chunks: AsyncIterator[bytes], name: str, most: int) -> int:
    size = 0
    fd = open_beneath(root, [staging], os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(fd, "wb") as file:
        async for chunk in chunks:
            size += len(chunk)
            if size > most:
                raise TooLargeError(f"'{name}' is larger than {most:,} bytes (uploads.max_file_size)")
            file.write(chunk)
    return size


def _put_in_place(root: int, staging: str, name: str) -> str:
    """Give the finished file its name; a hard link refuses a name that is taken, a rename would not."""
    path = PurePosixPath(name)
    for number in range(1000):
        candidate = name if number == 0 else f"{path.stem}_{number}{path.suffix}"
        try:
            os.link(staging, candidate, src_dir_fd=root, dst_dir_fd=root)
        except FileExistsError:
            continue
        os.unlink(staging, dir_fd=root)
        return candidate
    raise InvalidInputError(f"there are too many files named '{name}'; delete some or choose another name")


def _describe(root: int, thread_id: str, name: str, size: int) -> Upload:
    return Upload(thread_id, name, size, os.stat(name, dir_fd=root, follow_symlinks=False).st_mtime)
