"""Restores a thread's files from a snapshot.

Every path is opened through descriptors below the thread's folder, so no link that a sandbox left leads
out of it.
"""

import hashlib
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from deerflow.files.snapshots import Kind, Snapshot, SnapshotEntry, SnapshotStore, object_path, opened, scan
from deerflow.sandbox.openat2 import O_DIRECTORY, O_PATH, open_beneath

logger = logging.getLogger(__name__)

_ADDED_STAY = b"uploads/"
"""Files that users upload during a run are meant for the next one."""


def restore(store: SnapshotStore, snapshot: Snapshot) -> list[str]:
    """Restore the thread's files; return the paths that could not be restored."""
    store.folders.create()
    with opened(store.folders.user_data) as root:
        now = {entry.path: entry for entry in scan(root)}
        wanted = {entry.path: entry for entry in snapshot.entries}
        # The contents of a folder are removed before it, and created after it.
        extra = [entry for path, entry in sorted(now.items(), reverse=True) if path not in wanted]
        gone = [entry for entry in extra if not entry.path.startswith(_ADDED_STAY)]
        missing = [entry for entry in _ordered(snapshot) if not _is_there(entry, now.get(entry.path))]
        failed = _each(gone, lambda entry: _remove(root, entry))
        failed += _each(missing, lambda entry: _put(root, store.objects, entry))
        _set_folder_times(root, snapshot.entries)
    return failed


def copy_files(source: SnapshotStore, snapshot: Snapshot, target: SnapshotStore) -> list[str]:
    """Copy the files of a snapshot to another thread; return the paths that could not be copied."""
    target.folders.create()
    with opened(target.folders.user_data) as root:
        return _each(_ordered(snapshot), lambda entry: _put(root, source.objects, entry))


def _ordered(snapshot: Snapshot) -> list[SnapshotEntry]:
    return sorted(snapshot.entries, key=lambda entry: entry.path)


def _each(entries: Sequence[SnapshotEntry], work: Callable[[SnapshotEntry], None]) -> list[str]:
    failed = []
    for entry in entries:
        try:
            work(entry)
        except OSError as error:  # one file that cannot be written must not prevent the others
            logger.warning("file %r could not be restored: %s", entry.path, error)
            failed.append(os.fsdecode(entry.path))
    return failed


def _is_there(wanted: SnapshotEntry, now: SnapshotEntry | None) -> bool:
    if now is None or now.kind is not wanted.kind:
        return False
    if wanted.kind is Kind.FOLDER:
        return now.mode == wanted.mode
    if wanted.kind is Kind.LINK:
        return now.content == wanted.content
    return wanted.is_unchanged(now) and now.mtime_ns == wanted.mtime_ns


def _remove(root: int, entry: SnapshotEntry) -> None:
    with _parent(root, entry) as (folder, name), suppress(FileNotFoundError):
        if entry.kind is Kind.FOLDER:
            os.rmdir(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)


def _put(root: int, objects: Path, entry: SnapshotEntry) -> None:
    with _parent(root, entry) as (folder, name):
        match entry.kind:
            case Kind.FOLDER:
                _put_folder(folder, name, entry)
            case Kind.LINK:
                _clear(folder, name)
                os.symlink(entry.content, os.fsencode(name), dir_fd=folder)
            case Kind.FILE:
                _put_file(folder, name, objects, entry)


def _put_folder(folder: int, name: str, entry: SnapshotEntry) -> None:
    if not _is_folder(folder, name):
        _clear(folder, name)
        os.mkdir(name, 0o700, dir_fd=folder)
    made = os.open(name, os.O_RDONLY | O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    try:
        _set_attributes(made, entry)
    finally:
        os.close(made)


def _put_file(folder: int, name: str, objects: Path, entry: SnapshotEntry) -> None:
    """Write a temporary file and rename it, so that no reader sees half a file."""
    content = object_path(objects, entry.content).read_bytes()
    if hashlib.blake2b(content, digest_size=32).digest() != entry.content:
        raise OSError(5, "the kept content is damaged")
    if _is_folder(folder, name):
        _clear(folder, name)
    draft = f".{uuid.uuid4().hex}.restored"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(draft, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(file, "wb", closefd=False) as writer:
            writer.write(content)
        _set_attributes(file, entry)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(draft, dir_fd=folder)
        raise
    finally:
        os.close(file)


def _set_attributes(file: int, entry: SnapshotEntry) -> None:
    """Restore the owner, mode and modification time of a file or folder."""
    if os.geteuid() == 0:
        os.fchown(file, entry.uid, entry.gid)
    os.fchmod(file, entry.mode)
    os.utime(file, ns=(entry.mtime_ns, entry.mtime_ns))


def _clear(folder: int, name: str) -> None:
    """Remove what is at a path; a folder is empty by now."""
    with suppress(FileNotFoundError):
        if _is_folder(folder, name):
            os.rmdir(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)


def _is_folder(folder: int, name: str) -> bool:
    try:
        os.close(os.open(name, O_PATH | O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder))
    except OSError:
        return False
    return True


def _set_folder_times(root: int, entries: Sequence[SnapshotEntry]) -> None:
    for entry in entries:
        if entry.kind is Kind.FOLDER:
            with suppress(OSError), _parent(root, entry) as (folder, name):
                times = (entry.mtime_ns, entry.mtime_ns)
                os.utime(name, ns=times, dir_fd=folder, follow_symlinks=False)


@contextmanager
def _parent(root: int, entry: SnapshotEntry) -> Iterator[tuple[int, str]]:
    *parts, name = entry.parts
    folder = open_beneath(root, parts, os.O_RDONLY | O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield folder, name
    finally:
        os.close(folder)
