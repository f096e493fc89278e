"""Copies a thread's past files to a fork of it."""

import asyncio

from deerflow.domain import ThreadFolders
from deerflow.errors import StorageError
from deerflow.runtime.copying import copy_current_files
from deerflow.runtime.past_files import PastFiles
from deerflow.runtime.restore import copy_files
from deerflow.runtime.snapshots import SnapshotStore


async def fork_files(source: ThreadFolders, target: ThreadFolders, past: PastFiles) -> None:
    """Copy a thread's files, of a snapshot or current, to another thread."""
    await asyncio.to_thread(_fork_files, SnapshotStore(source), SnapshotStore(target), past)


def _fork_files(source: SnapshotStore, target: SnapshotStore, past: PastFiles) -> None:
    if past.snapshot is None:
        copy_current_files(source, target)
        return
    failed = copy_files(source, past.snapshot, target)
    if failed:
        raise StorageError(f"{len(failed)} files could not be copied, such as {failed[0]}")
