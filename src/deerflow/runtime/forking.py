"""Forks a thread at a message: the conversation up to it, with the files as they were then."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from deerflow.domain import RunRecord, ThreadFolders
from deerflow.errors import NotFoundError, StorageError
from deerflow.runtime.conversation import Said, id_of, parent_of, place
from deerflow.runtime.copying import copy_current_files
from deerflow.runtime.restore import copy_files
from deerflow.runtime.snapshots import Snapshot, SnapshotStore


@dataclass(frozen=True, slots=True)
class PastFiles:
    """A thread's files as they were after a run."""

    snapshot: Snapshot | None
    """None: as they are now."""
    is_exact: bool = True
    """False: those of then were too large to be kept, or are not kept any more."""


def later_runs(runs: Sequence[RunRecord], item: Said) -> list[str]:
    """Return the runs that came after a message's own, oldest first.

    Args:
        runs: The thread's runs, newest first.
    """
    ids = [run.id for run in runs]
    if item.run_id in ids:
        return ids[: ids.index(item.run_id)][::-1]
    return [run.id for run in reversed(runs) if run.created_at > item.at]


def files_after(store: SnapshotStore, later: Sequence[str], *, kept: int) -> PastFiles:
    """Return the files as they were before the first of the `later` runs that changed some.

    Args:
        kept: How many snapshots of a thread are kept at least: with fewer, none was dropped.
    """
    for position, run_id in enumerate(later):
        snapshot = store.find(run_id)
        if snapshot is None:
            continue
        names = store.run_ids()
        # A run without a snapshot changed nothing, unless older snapshots have been dropped.
        is_exact = position == 0 or names[-1:] != [run_id] or len(names) < kept
        return PastFiles(snapshot) if is_exact and snapshot.problem is None else PastFiles(None, False)
    return PastFiles(None)


async def fork_files(source: ThreadFolders, target: ThreadFolders, past: PastFiles) -> None:
    """Lay out a thread's files of then, or of now, in another thread."""
    await asyncio.to_thread(_fork_files, SnapshotStore(source), SnapshotStore(target), past)


async def fork_checkpoints(
    checkpoints: BaseCheckpointSaver[Any], source_id: str, target_id: str, checkpoint_id: str
) -> None:
    """Give a new thread the states of another one up to a checkpoint; sub-agents' are left behind."""
    chain = await _ancestry(checkpoints, source_id, checkpoint_id)
    for found in reversed(chain):
        config = await checkpoints.aput(
            place(target_id, parent_of(found)),
            found.checkpoint,
            found.metadata,
            found.checkpoint["channel_versions"],
        )
        if id_of(config) != checkpoint_id:  # what came after the last one belongs to the other thread
            await _copy_writes(checkpoints, config, found)


def _fork_files(source: SnapshotStore, target: SnapshotStore, past: PastFiles) -> None:
    if past.snapshot is None:
        copy_current_files(source, target)
        return
    failed = copy_files(source, past.snapshot, target)
    if failed:
        raise StorageError(f"{len(failed)} files could not be copied, such as {failed[0]}")


async def _ancestry(
    checkpoints: BaseCheckpointSaver[Any], thread_id: str, checkpoint_id: str
) -> list[CheckpointTuple]:
    chain: list[CheckpointTuple] = []
    wanted: str | None = checkpoint_id
    async for found in checkpoints.alist(place(thread_id)):
        if wanted is not None and id_of(found.config) == wanted:
            chain.append(found)
            wanted = parent_of(found)
    if not chain:
        raise NotFoundError("checkpoint", checkpoint_id)
    return chain


async def _copy_writes(checkpoints: BaseCheckpointSaver[Any], config: Any, found: CheckpointTuple) -> None:
    by_task: dict[str, list[tuple[str, Any]]] = {}
    for task, channel, value in found.pending_writes or ():
        by_task.setdefault(task, []).append((channel, value))
    for number, (task, writes) in enumerate(by_task.items()):
        # Their order is told by the path, which a tuple does not have.
        await checkpoints.aput_writes(config, writes, task, f"{number:06}")
