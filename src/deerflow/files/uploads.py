"""Stores files that users upload to a thread: whole or not at all, never through a link."""

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, BinaryIO
from urllib.parse import quote

from deerflow.config import UploadSettings
from deerflow.domain import ThreadFolders, companion_of
from deerflow.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PathRefusedError,
    TooLargeError,
)
from deerflow.files.snapshots import opened
from deerflow.sandbox.openat2 import O_DIRECTORY, make_folders, open_beneath

VIRTUAL_UPLOADS = "/mnt/user-data/uploads"
_STAGING = ".staging-"
_NAME_BYTES = 255
_SUFFIX_BYTES = 32
"""A longer suffix is not a file type."""


@dataclass(frozen=True, slots=True)
class StoredUpload:
    """One uploaded file."""

    thread_id: str
    filename: str
    size: int
    modified: float
    markdown: str | None = None
    """The name of the Markdown file with its text."""
    markdown_note: str | None = None
    """Why there is no Markdown file, or not yet."""

    def to_dict(self) -> dict[str, Any]:
        path = f"{VIRTUAL_UPLOADS}/{self.filename}"
        shown = {
            "filename": self.filename,
            "size": self.size,
            "path": path,
            "virtual_path": path,
            "artifact_url": artifact_url(self.thread_id, path),
            "extension": PurePosixPath(self.filename).suffix,
            "modified": self.modified,
        }
        if self.markdown_note:
            shown["markdown_note"] = self.markdown_note
        if self.markdown is None:
            return shown
        markdown_path = f"{VIRTUAL_UPLOADS}/{self.markdown}"
        return {
            **shown,
            "markdown_file": self.markdown,
            "markdown_path": markdown_path,
            "markdown_virtual_path": markdown_path,
            "markdown_artifact_url": artifact_url(self.thread_id, markdown_path),
        }


def artifact_url(thread_id: str, path: str) -> str:
    """Return the URL path of a thread's file."""
    return f"/api/threads/{thread_id}/artifacts{quote(path, errors='surrogateescape')}"


async def save_upload(
    folders: ThreadFolders, filename: str, chunks: AsyncIterator[bytes], limits: UploadSettings
) -> StoredUpload:
    """Store one file; a name that is taken gets a number, so that nothing is overwritten."""
    name = checked_name(filename)
    with _uploads(folders) as root:
        staging = f"{_STAGING}{secrets.token_hex(8)}"
        try:
            size = await _write(root, staging, chunks, name, limits)
            final = _link_under_free_name(root, staging, name)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(staging, dir_fd=root)
        modified = os.stat(final, dir_fd=root, follow_symlinks=False).st_mtime
        return StoredUpload(folders.thread_id, final, size, modified)


def list_uploads(folders: ThreadFolders) -> list[StoredUpload]:
    """Return the thread's uploads, sorted by name."""
    with _uploads(folders) as root, os.scandir(root) as entries:
        found = filter(None, [_listed(entry, folders.thread_id) for entry in entries])
        by_name = {upload.filename: upload for upload in found}
    companions = {name: markdown for name in by_name if (markdown := companion_of(name)) in by_name}
    return [
        replace(by_name[name], markdown=companions.get(name))
        for name in sorted(by_name)
        if name not in companions.values()
    ]


def delete_upload(folders: ThreadFolders, filename: str) -> None:
    """Delete one upload and its Markdown file."""
    name = checked_name(filename)
    with _uploads(folders) as root:
        try:
            os.unlink(name, dir_fd=root)
        except (FileNotFoundError, IsADirectoryError) as error:
            raise NotFoundError("upload", name) from error
        if (companion := companion_of(name)) is not None:
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(companion, dir_fd=root)


@contextlib.contextmanager
def open_upload(folders: ThreadFolders, filename: str) -> Iterator[BinaryIO]:
    """Open one upload for reading, never through a link."""
    name = checked_name(filename)
    with _uploads(folders) as root:
        try:
            fd = open_beneath(root, [name], os.O_RDONLY | os.O_NOFOLLOW)
        except OSError as error:
            raise NotFoundError("upload", name) from error
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise NotFoundError("upload", name)
        yield file


def add_companion(folders: ThreadFolders, filename: str, markdown: bytes) -> None:
    """Store a document's Markdown file; an existing file of that name is not overwritten."""
    name = companion_of(checked_name(filename))
    if name is None or len(name.encode()) > _NAME_BYTES:
        raise InvalidInputError("its name is too long for a Markdown file next to it")
    with _uploads(folders) as root:
        staging = f"{_STAGING}{secrets.token_hex(8)}"
        try:
            fd = open_beneath(root, [staging], os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(fd, "wb") as file:
                file.write(markdown)
            os.stat(filename, dir_fd=root, follow_symlinks=False)  # raises if it was deleted meanwhile
            os.link(staging, name, src_dir_fd=root, dst_dir_fd=root)
        except FileExistsError as error:
            raise ConflictError(f"there is a file '{name}' already") from error
        except FileNotFoundError as error:
            raise NotFoundError("upload", filename) from error
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(staging, dir_fd=root)


def checked_name(filename: str) -> str:
    """Return a valid file name; the error says what is wrong with it."""
    name = filename.strip()
    problem = None
    if not name or name in (".", ".."):
        problem = "it is empty"
    elif "/" in name or "\\" in name:
        problem = "it has a slash; send the name alone"
    elif re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", name):
        problem = "it has control characters or broken ones"
    elif len(name.encode("utf-8", "replace")) > _NAME_BYTES:
        problem = f"it is longer than {_NAME_BYTES} bytes"
    elif name.startswith(_STAGING):
        problem = "names like this are kept for uploads in progress"
    if problem:
        raise InvalidInputError(f"file name {name[:80]!a} cannot be used: {problem}")
    return name


def check_size(name: str, size: int, limits: UploadSettings) -> None:
    """Raise `TooLargeError` for a file above the size limit."""
    if size > limits.max_file_size:
        most = f"{limits.max_file_size:,} bytes (uploads.max_file_size)"
        raise TooLargeError(f"{name[:80]!a} is larger than {most}")


@contextlib.contextmanager
def _uploads(folders: ThreadFolders) -> Iterator[int]:
    """Open the uploads folder; a link that an agent put in its place is rejected."""
    folders.user_data.mkdir(parents=True, exist_ok=True)
    name = folders.uploads.name
    try:
        with opened(folders.user_data) as above:
            os.close(make_folders(above, [name]))
            root = open_beneath(above, [name], os.O_RDONLY | O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in _REPLACED:
            raise
        raise PathRefusedError(
            f"the uploads folder of thread {folders.thread_id} was replaced by something else; "
            "remove that, or use another thread"
        ) from error
    try:
        yield root
    finally:
        os.close(root)


_REPLACED = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EXDEV, errno.EEXIST})


def _listed(entry: "os.DirEntry[str]", thread_id: str) -> StoredUpload | None:
    if entry.name.startswith(_STAGING):
        return None
    try:
        about = entry.stat(follow_symlinks=False)
    except FileNotFoundError:  # deleted meanwhile
        return None
    return (
        StoredUpload(thread_id, entry.name, about.st_size, about.st_mtime)
        if stat.S_ISREG(about.st_mode)
        else None
    )


async def _write(
    root: int, staging: str, chunks: AsyncIterator[bytes], name: str, limits: UploadSettings
) -> int:
    size = 0
    fd = open_beneath(root, [staging], os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(fd, "wb") as file:
        async for chunk in chunks:
            size += len(chunk)
            check_size(name, size, limits)
            file.write(chunk)
    return size


def _link_under_free_name(root: int, staging: str, name: str) -> str:
    """Give the finished file its name; a hard link fails if the name is taken, a rename would not."""
    for number in range(1000):
        candidate = name if number == 0 else _numbered(name, number)
        try:
            os.link(staging, candidate, src_dir_fd=root, dst_dir_fd=root)
        except FileExistsError:
            continue
        os.unlink(staging, dir_fd=root)
        return candidate
    raise InvalidInputError(f"there are too many files named '{name}'; delete some or choose another name")


def _numbered(name: str, number: int) -> str:
    path = PurePosixPath(name)
    has_type = len(path.suffix.encode()) <= _SUFFIX_BYTES
    tail = f"_{number}{path.suffix if has_type else ''}"
    stem = (path.stem if has_type else name).encode()[: _NAME_BYTES - len(tail.encode())]
    return stem.decode(errors="ignore") + tail
