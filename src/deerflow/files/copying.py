"""Copies a thread (checkpoints, title, files), or the past files of one to a fork of it."""

import asyncio

from deerflow.domain import Thread, ThreadFolders, new_id
from deerflow.errors import StorageError, TooLargeError
from deerflow.files.file_history import PastFiles
from deerflow.files.restore import copy_files
from deerflow.files.snapshots import SnapshotLimits, SnapshotStore
from deerflow.sandbox import remove_tree
from deerflow.storage import Storage

_LIMITS = SnapshotLimits(max_bytes=1024**3, max_files=100_000)


async def copy_thread(
    storage: Storage, thread: Thread, source: ThreadFolders, target: ThreadFolders
) -> Thread:
    """Copy `thread` to `target`; runs and their events are not copied.

    The copy is listed only when it is complete.
    """
    try:
        await asyncio.to_thread(copy_current_files, SnapshotStore(source), SnapshotStore(target))
        await storage.checkpoints.acopy_thread(thread.id, target.thread_id)
    except BaseException:
        await asyncio.shield(asyncio.to_thread(remove_tree, target.root))
        raise
    await storage.threads.create(target.thread_id, thread.user_id, thread.metadata)
    # Interrupts that wait in the original wait in the copy: they are in the checkpoints.
    status = thread.status if thread.interrupts else None
    return await storage.threads.update(
        target.thread_id, title=thread.title, status=status, interrupts=thread.interrupts, asks=thread.asks
    )


def copy_current_files(source: SnapshotStore, target: SnapshotStore) -> None:
    """Copy a thread's current files to another thread."""
    if not source.folders.user_data.exists():
        return  # no run has executed in it
    name = f"copy-{new_id()}"
    snapshot = source.keep(name, _LIMITS)
    try:
        if snapshot.problem is not None:
            raise TooLargeError(f"the thread cannot be copied: {snapshot.problem}")
        failed = copy_files(source, snapshot, target)
    finally:
        source.forget(name)
    if failed:
        raise StorageError(f"{len(failed)} files could not be copied, such as {failed[0]}")


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
