"""Compares a thread's files before and after a run.

Text files of moderate size get a line diff; other files are only reported as changed.
"""

import difflib
import hashlib
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from deerflow.errors import TooLargeError
from deerflow.files.snapshots import Kind, Snapshot, SnapshotEntry, SnapshotStore, object_path, opened, scan
from deerflow.sandbox.openat2 import open_beneath
from deerflow.web.pages import FOLDER as WEB_FOLDER

logger = logging.getLogger(__name__)

VERSION = 1
MAX_FILES = 500
MAX_FILE_BYTES = 256 * 1024
MAX_DIFF_CHARS = 64 * 1024
MAX_TOTAL_CHARS = 1024 * 1024
_MAX_LINES = 5000
"""Diffs of more lines take seconds."""
_USER_DATA = "/mnt/user-data"
_WEB_PAGES = f"{WEB_FOLDER.removeprefix(_USER_DATA + '/')}/".encode()
"""Where `web_fetch` stores pages, which are no work of the run."""
_NOTHING = "/dev/null"
_SENSITIVE = re.compile(
    r"\.env(\..*)?|\.netrc|\.npmrc|\.pypirc|id_(rsa|dsa|ecdsa|ed25519)|credentials(\..*)?|.*\.(pem|key|p12|pfx)",
    re.IGNORECASE,
)
"""Names of files whose content must not appear in a list of changes."""
_LIMITS = {
    "max_files": MAX_FILES,
    "max_file_bytes": MAX_FILE_BYTES,
    "max_diff_chars": MAX_DIFF_CHARS,
    "max_total_diff_chars": MAX_TOTAL_CHARS,
}

Read = Callable[[SnapshotEntry], bytes | None]
"""Returns a file's content; None when it is not available."""


@dataclass(frozen=True, slots=True)
class FileDiff:
    """One changed file."""

    path: str
    root: str
    """The folder of the thread that contains it: `workspace`, `outputs` or `uploads`."""
    status: Literal["created", "modified", "deleted"]
    size_before: int | None
    size_after: int | None
    is_symlink: bool = False
    sha256_before: str | None = None
    sha256_after: str | None = None
    additions: int = 0
    deletions: int = 0
    diff: str = ""
    diff_truncated: bool = False
    diff_unavailable_reason: Literal["binary", "large", "sensitive", "truncated"] | None = None

    def out(self, *, with_diff: bool) -> dict[str, Any]:
        shown = asdict(self) if with_diff else asdict(replace(self, diff=""))
        del shown["is_symlink"]
        reason = self.diff_unavailable_reason
        return {**shown, "binary": reason == "binary", "sensitive": reason == "sensitive"}


@dataclass(frozen=True, slots=True)
class Changes:
    """All file changes of a run."""

    is_known: bool
    """False: the run changed nothing, or its snapshot is not kept."""
    files: Sequence[FileDiff] = field(default_factory=list)
    left_out: int = 0

    def out(self, *, with_files: bool, with_diff: bool) -> dict[str, Any]:
        return {
            "available": self.is_known,
            "version": VERSION,
            "summary": self._summary(),
            "files": [change.out(with_diff=with_diff) for change in self.files] if with_files else [],
            "limits": _LIMITS,
        }

    def _summary(self) -> dict[str, Any]:
        count = dict.fromkeys(("created", "modified", "deleted"), 0)
        for change in self.files:
            count[change.status] += 1
        return {
            **count,
            "symlink_created": sum(change.is_symlink and change.status == "created" for change in self.files),
            "additions": sum(change.additions for change in self.files),
            "deletions": sum(change.deletions for change in self.files),
            "truncated": bool(self.left_out) or any(change.diff_truncated for change in self.files),
        }


def changes_of(store: SnapshotStore, run_id: str, later: Sequence[str]) -> Changes:
    """Return what a run changed, up to its end.

    Args:
        later: The runs after it, oldest first: if the run's end was not recorded, the first later snapshot
            is used instead.
    """
    before = store.find(run_id)
    if before is None or before.problem is not None:
        return Changes(False)
    kept = _reader(store)
    ends = (store.find_end(run_id), *(store.find(name) for name in later))
    after = next((found for found in ends if found is not None), None)
    if after is not None:
        return _compared(before, after.entries, kept, kept) if after.problem is None else Changes(False)
    if not store.folders.user_data.is_dir():
        return _compared(before, (), kept, kept)
    with opened(store.folders.user_data) as root:
        try:
            present = list(scan(root))
        except TooLargeError:
            return Changes(False)
        return _compared(before, present, kept, lambda entry: _content(root, entry))


def keep_end(store: SnapshotStore, run_id: str) -> None:
    """Record the files at a run's end, so that later changes by users are not attributed to it."""
    try:
        store.keep_end(run_id, max_files=MAX_FILES, max_file_bytes=MAX_FILE_BYTES)
    except OSError as error:
        logger.warning("what run %s left in its files could not be noted: %s", run_id, error)


def _compared(before: Snapshot, after: Sequence[SnapshotEntry], old: Read, new: Read) -> Changes:
    was, now = _by_path(before.entries), _by_path(after)
    changed = [path for path in sorted(was.keys() | now.keys()) if _may_differ(was.get(path), now.get(path))]
    files: list[FileDiff] = []
    left, left_out = MAX_TOTAL_CHARS, 0
    for path in changed:
        if len(files) == MAX_FILES:
            left_out += 1
            continue
        change = _change(was.get(path), now.get(path), old, new, min(left, MAX_DIFF_CHARS))
        if change is not None:
            files.append(change)
            left -= len(change.diff)
    return Changes(True, files, left_out)


def _by_path(entries: Sequence[SnapshotEntry]) -> Mapping[bytes, SnapshotEntry]:
    return {
        entry.path: entry
        for entry in entries
        if entry.kind in (Kind.FILE, Kind.LINK) and not entry.path.startswith(_WEB_PAGES)
    }


def _may_differ(was: SnapshotEntry | None, now: SnapshotEntry | None) -> bool:
    if was is None or now is None or was.kind is not now.kind:
        return True
    if was.content and now.content:
        return was.content != now.content
    return not was.is_unchanged(now)


def _change(
    was: SnapshotEntry | None, now: SnapshotEntry | None, old: Read, new: Read, most: int
) -> FileDiff | None:
    """Return the change of one file; None when only its timestamps changed."""
    entry = now or was
    assert entry is not None
    path = os.fsdecode(entry.path).encode("utf-8", "replace").decode()
    change = FileDiff(
        path=f"{_USER_DATA}/{path}",
        root=path.partition("/")[0],
        status="created" if was is None else "deleted" if now is None else "modified",
        size_before=was.size if was else None,
        size_after=now.size if now else None,
        is_symlink=now is not None and now.kind is Kind.LINK,
    )
    if any(side is not None and side.kind is Kind.LINK for side in (was, now)):
        return change
    if any(side is not None and side.size > MAX_FILE_BYTES for side in (was, now)):
        return (
            None
            if was and now and _is_same(was, now, new)
            else replace(change, diff_unavailable_reason="large")
        )
    first, second = old(was) if was else b"", new(now) if now else b""
    if first is None or second is None:
        return replace(change, diff_unavailable_reason="truncated")
    if was and now and first == second:
        return None
    change = replace(
        change,
        sha256_before=hashlib.sha256(first).hexdigest() if was else None,
        sha256_after=hashlib.sha256(second).hexdigest() if now else None,
    )
    if _SENSITIVE.fullmatch(path.rpartition("/")[2]):
        return replace(change, diff_unavailable_reason="sensitive")
    return _with_diff(change, first, second, most)


def _is_same(was: SnapshotEntry, now: SnapshotEntry, new: Read) -> bool:
    """Return whether only the timestamps of a large file changed."""
    if was.size != now.size:
        return False
    if now.content:
        return now.content == was.content
    content = new(now)
    return content is not None and hashlib.blake2b(content, digest_size=32).digest() == was.content


def _with_diff(change: FileDiff, first: bytes, second: bytes, most: int) -> FileDiff:
    try:
        old, new = (text.decode().splitlines(keepends=True) for text in (first, second))
    except UnicodeDecodeError:
        return replace(change, diff_unavailable_reason="binary")
    if b"\0" in first or b"\0" in second:
        return replace(change, diff_unavailable_reason="binary")
    if len(old) + len(new) > _MAX_LINES:
        return replace(change, diff_unavailable_reason="large")
    source = _NOTHING if change.status == "created" else change.path
    target = _NOTHING if change.status == "deleted" else change.path
    lines = [_ended(line) for line in difflib.unified_diff(old, new, source, target)]
    diff = "".join(lines)
    return replace(
        change,
        additions=sum(line.startswith("+") for line in lines[2:]),
        deletions=sum(line.startswith("-") for line in lines[2:]),
        diff=diff[: max(most, 0)],
        diff_truncated=len(diff) > most,
        diff_unavailable_reason="truncated" if most <= 0 else None,
    )


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _reader(store: SnapshotStore) -> Read:
    def read(entry: SnapshotEntry) -> bytes | None:
        try:
            return object_path(store.objects, entry.content).read_bytes()
        except OSError:  # deleted with old snapshots
            return None

    return read


def _content(root: int, entry: SnapshotEntry) -> bytes | None:
    """Return a file's current content, up to the size seen by the scan."""
    try:
        file = open_beneath(root, entry.parts, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(file, "rb") as reader:
            return reader.read(max(entry.size, 0))
    except OSError:
        return None
