"""Snapshots of a thread's files, taken before a run changes them.

A snapshot is taken before the first tool call of a run that may change something, so a run without such
calls costs nothing. Contents are stored once, by digest, beside the thread's files and out of its sandbox's
reach. A file whose times did not change since the last snapshot is not read again.
"""

import asyncio
import hashlib
import logging
import os
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

import ormsgpack

from deerflow.config import RunSettings
from deerflow.domain import RunRecord, ThreadFolders
from deerflow.errors import StorageError, TooLargeError
from deerflow.sandbox.openat2 import O_DIRECTORY, O_PATH, open_beneath
from deerflow.storage import EffectLog, EffectState

logger = logging.getLogger(__name__)

_PIECE = 1024 * 1024
_RACY_NS = 20_000_000
"""A file changed this shortly before a snapshot may change again with the same timestamps."""
MAX_ENTRIES = 200_000
"""How many paths of a thread are scanned, at a few hundred bytes of memory each."""
_SCOPES = ("workspace", "outputs", "uploads")


class Kind(IntEnum):
    """The type of a path."""

    FOLDER = 0
    FILE = 1
    LINK = 2
    OTHER = 3
    """A pipe, a socket or a device: it has no content to keep."""


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """One path of a snapshot."""

    kind: Kind
    path: bytes
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    size: int
    content: bytes = b""
    """A file's digest, a link's target."""

    @property
    def parts(self) -> list[str]:
        return os.fsdecode(self.path).split("/")

    def is_unchanged(self, now: "SnapshotEntry") -> bool:
        """Return whether a file and its content are the same, by attributes that programs cannot set."""
        return (self.kind, self.size, self.ctime_ns, self.inode) == (
            now.kind,
            now.size,
            now.ctime_ns,
            now.inode,
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files at one time, or why they could not be kept."""

    taken_ns: int
    entries: Sequence[SnapshotEntry] = ()
    problem: str | None = None
    """Why the files could not be kept, as text for users."""


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """The limits of one snapshot."""

    max_bytes: int
    max_files: int = 10_000
    kept: int | None = None
    """The minimum number of snapshots kept per thread; None: all."""


@dataclass(frozen=True, slots=True)
class SnapshotStore:
    """The snapshots of one thread."""

    folders: ThreadFolders

    @property
    def objects(self) -> Path:
        """The folder of contents, by digest."""
        return self._root / "objects"

    @property
    def _root(self) -> Path:
        return self.folders.root / "snapshots"

    def find(self, run_id: str) -> Snapshot | None:
        """Return the snapshot of a run; None when the run has changed nothing yet."""
        return _load(self._manifest(run_id))

    def keep(self, run_id: str, limits: SnapshotLimits) -> Snapshot:
        """Take the snapshot of a run unless there is one; on failure, record the reason instead.

        `OSError` when not even the reason can be written.
        """
        known = self.find(run_id)
        if known is not None:
            return known
        self.objects.mkdir(parents=True, exist_ok=True, mode=0o700)
        taken_ns = time.time_ns()
        try:
            snapshot = Snapshot(taken_ns, self._take(limits))
        except TooLargeError as error:
            snapshot = Snapshot(taken_ns, problem=str(error))
        except OSError as error:
            logger.warning("files of thread %s could not be kept: %s", self.folders.thread_id, error)
            snapshot = Snapshot(taken_ns, problem=f"the files could not be read: {error.strerror}")
        _save(self._manifest(run_id), snapshot)
        if limits.kept is not None:
            try:
                self._drop_old(limits.kept, run_id)
            except OSError as error:
                name = self.folders.thread_id
                logger.warning("old files of thread %s could not be deleted: %s", name, error)
        return snapshot

    def forget(self, run_id: str) -> None:
        """Delete a snapshot; contents that only it used are deleted in the next clean-up."""
        self._manifest(run_id).unlink(missing_ok=True)

    def has(self, run_id: str) -> bool:
        return self._manifest(run_id).exists()

    def find_end(self, run_id: str) -> Snapshot | None:
        """Return the snapshot of a run's end; None when it was not recorded."""
        return _load(self._end_manifest(run_id))

    def keep_end(self, run_id: str, *, max_files: int, max_file_bytes: int) -> None:
        """Record the files at the end of a run that may have changed some.

        Args:
            max_files: How many changed files are kept with their content.
            max_file_bytes: The size limit of each of them.
        """
        before = self.find(run_id)
        if before is None or before.problem is not None:
            return
        taken_ns = time.time_ns()
        try:
            with opened(self.folders.user_data) as root:
                end = Snapshot(taken_ns, self._left(root, before, max_files, max_file_bytes))
        except TooLargeError as error:
            end = Snapshot(taken_ns, problem=str(error))
        _save(self._end_manifest(run_id), end)

    def run_ids(self) -> list[str]:
        """Return the runs whose snapshots are kept, newest first."""
        return [path.stem for path in self._manifests()]

    def _take(self, limits: SnapshotLimits) -> list[SnapshotEntry]:
        manifests = self._manifests()
        older = _load(manifests[0]) if manifests else None
        known = {entry.path: entry for entry in older.entries} if older is not None else {}
        with opened(self.folders.user_data) as root:
            found = [entry for entry in scan(root, most=limits.max_files) if entry.kind is not Kind.OTHER]
            check_size(found, limits)
            taken_ns = older.taken_ns if older is not None else 0
            return [self._with_content(root, entry, known.get(entry.path), taken_ns) for entry in found]

    def _left(self, root: int, before: Snapshot, max_files: int, max_file_bytes: int) -> list[SnapshotEntry]:
        known = {entry.path: entry for entry in before.entries}
        found: list[SnapshotEntry] = []
        left = max_files
        for entry in sorted(scan(root), key=lambda each: each.path):
            was = known.get(entry.path)
            if entry.kind is not Kind.FILE:
                found.append(entry)
            elif was is not None and was.is_unchanged(entry) and was.ctime_ns < before.taken_ns - _RACY_NS:
                found.append(replace(entry, content=was.content))
            elif entry.size <= max_file_bytes and left > 0:
                left -= 1
                found.append(replace(entry, content=self._store(root, entry)))
            elif was is not None and was.size == entry.size:
                found.append(replace(entry, content=_digest(root, entry)))
            else:
                found.append(entry)
        return found

    def _with_content(
        self, root: int, entry: SnapshotEntry, older: SnapshotEntry | None, older_ns: int
    ) -> SnapshotEntry:
        if entry.kind is not Kind.FILE:
            return entry
        if older is not None and older.is_unchanged(entry) and older.ctime_ns < older_ns - _RACY_NS:
            return replace(entry, content=older.content)
        return replace(entry, content=self._store(root, entry))

    def _store(self, root: int, entry: SnapshotEntry) -> bytes:
        """Store a file's content by its digest; at most as many bytes as the scan has seen."""
        draft = self.objects / f"{uuid.uuid4().hex}.new"
        digest = hashlib.blake2b(digest_size=32)
        left = entry.size
        source = open_beneath(root, entry.parts, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            with os.fdopen(source, "rb", buffering=0) as file, draft.open("wb") as copy:
                while left > 0 and (piece := file.read(min(left, _PIECE))):
                    digest.update(piece)
                    copy.write(piece)
                    left -= len(piece)
            draft.rename(object_path(self.objects, digest.digest()))
        finally:
            draft.unlink(missing_ok=True)
        return digest.digest()

    def _manifests(self) -> list[Path]:
        return sorted(self._root.glob("*.manifest"), key=lambda path: path.stat().st_mtime_ns, reverse=True)

    def _manifest(self, run_id: str) -> Path:
        return self._root / f"{run_id}.manifest"

    def _end_manifest(self, run_id: str) -> Path:
        return self._root / f"{run_id}.end"

    def _drop_old(self, kept: int, run_id: str) -> None:
        # This run's snapshot first, even if the clock was set back since the others.
        manifests = sorted(self._manifests(), key=lambda path: path.stem != run_id)
        if len(manifests) <= 2 * kept:  # rarely: finding unused contents means reading all manifests
            return
        for path in manifests[kept:]:
            path.unlink(missing_ok=True)
            path.with_suffix(".end").unlink(missing_ok=True)
        records = [record for path in manifests[:kept] for record in (path, path.with_suffix(".end"))]
        loaded = [snapshot for path in records if (snapshot := _load(path)) is not None]
        needed = {entry.content.hex() for snapshot in loaded for entry in snapshot.entries}
        for path in self.objects.iterdir():
            if path.name not in needed:
                path.unlink(missing_ok=True)


def object_path(objects: Path, digest: bytes) -> Path:
    """Return the path of a content."""
    return objects / digest.hex()


def _digest(root: int, entry: SnapshotEntry) -> bytes:
    """Return the digest of a file's content without storing it."""
    digest = hashlib.blake2b(digest_size=32)
    source = open_beneath(root, entry.parts, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(source, "rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.digest()


def check_size(entries: Sequence[SnapshotEntry], limits: SnapshotLimits) -> None:
    """Raise `TooLargeError` when a snapshot would exceed the limits."""
    size = sum(entry.size for entry in entries)
    if size > limits.max_bytes:
        raise TooLargeError(
            f"the thread's files take {size} bytes, more than runs.snapshot_max_bytes ({limits.max_bytes})"
        )


def _save(path: Path, snapshot: Snapshot) -> None:
    rows = [[int(entry.kind), *(getattr(entry, name) for name in _COLUMNS)] for entry in snapshot.entries]
    draft = path.with_suffix(".new")
    draft.write_bytes(ormsgpack.packb([1, snapshot.taken_ns, snapshot.problem, rows]))
    draft.rename(path)


def _load(path: Path) -> Snapshot | None:
    try:
        _, taken_ns, problem, rows = ormsgpack.unpackb(path.read_bytes())
        return Snapshot(taken_ns, [SnapshotEntry(Kind(row[0]), *row[1:]) for row in rows], problem)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):  # not msgpack, or not our format
        return Snapshot(0, problem="the record of the files is damaged")


_COLUMNS = SnapshotEntry.__slots__[1:]


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    """Open a folder as the root of a scan."""
    descriptor = os.open(folder, O_PATH | O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def scan(root: int, *, most: int = MAX_ENTRIES) -> Iterator[SnapshotEntry]:
    """Yield all entries of a thread's folders, each folder before its contents; links are not followed.

    `TooLargeError` beyond `most` entries: a command may create millions, and callers keep all in memory.
    """
    for count, entry in enumerate(_entries(root), 1):
        if count > most:
            raise TooLargeError(f"the thread has more than {most} files")
        yield entry


def _entries(root: int) -> Iterator[SnapshotEntry]:
    waiting: list[tuple[str, ...]] = [(scope,) for scope in reversed(_SCOPES)]
    while waiting:
        parts = waiting.pop()
        try:
            folder = open_beneath(root, parts, os.O_RDONLY | O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        try:
            with os.scandir(folder) as items:
                for item in items:
                    entry = _entry(folder, parts, item)
                    if entry is None:
                        continue
                    yield entry
                    if entry.kind is Kind.FOLDER:
                        waiting.append((*parts, item.name))
        finally:
            os.close(folder)


def _entry(folder: int, parts: tuple[str, ...], item: os.DirEntry[str]) -> SnapshotEntry | None:
    """Return the entry of a name; None when it was deleted meanwhile."""
    try:
        status = item.stat(follow_symlinks=False)
        kind = _kind(status.st_mode)
        target = os.fsencode(os.readlink(item.name, dir_fd=folder)) if kind is Kind.LINK else b""
    except FileNotFoundError:
        return None
    return SnapshotEntry(
        kind=kind,
        path=os.fsencode("/".join((*parts, item.name))),
        mode=stat.S_IMODE(status.st_mode),
        uid=status.st_uid,
        gid=status.st_gid,
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
        inode=status.st_ino,
        size=status.st_size if kind is Kind.FILE else 0,
        content=target,
    )


def _kind(mode: int) -> Kind:
    if stat.S_ISDIR(mode):
        return Kind.FOLDER
    if stat.S_ISREG(mode):
        return Kind.FILE
    return Kind.LINK if stat.S_ISLNK(mode) else Kind.OTHER


class RunEffects:
    """The effects of one run's tools: files are snapshotted first, and no call is repeated without asking."""

    def __init__(
        self,
        *,
        log: EffectLog,
        run: RunRecord,
        files: SnapshotStore,
        settings: RunSettings,
        prepare: Callable[[], None],
    ) -> None:
        """Args: `prepare` creates the thread's folders, which may change their owners."""
        self._prepare = prepare
        self._log = log
        self._run = run
        self._files = files
        self._settings = settings
        self._keeping: asyncio.Task[None] | None = None

    async def start(self, call: bytes) -> EffectState | None:
        """Return when a call may execute, with its recorded state from an attempt that died."""
        if self._keeping is None or _has_failed(self._keeping):
            self._keeping = asyncio.create_task(self._keep())
        await asyncio.shield(self._keeping)  # other calls wait for the same snapshot
        return await self._log.start(self._run.id, attempt=self._run.attempt, call=call)

    def finish(self, call: bytes) -> None:
        self._log.finish(self._run.id, attempt=self._run.attempt, call=call)

    async def aclose(self) -> None:
        """Wait for a snapshot in progress: the next step may change the files."""
        if self._keeping is not None:
            await asyncio.gather(self._keeping, return_exceptions=True)

    async def _keep(self) -> None:
        limits = SnapshotLimits(self._settings.snapshot_max_bytes, kept=self._settings.snapshots_kept)
        try:
            self._prepare()
            await asyncio.to_thread(self._files.keep, self._run.id, limits)
        except OSError as error:
            # Nothing may change before the snapshot: a rollback could not undo it.
            raise StorageError(
                "the thread's files could not be kept for a rollback, so nothing may change them: "
                f"{error.strerror}; free some disk space, or make the thread's folder writable"
            ) from error


def _has_failed(keeping: asyncio.Task[None]) -> bool:
    return keeping.done() and (keeping.cancelled() or keeping.exception() is not None)
