"""A thread's files at a point in its history: finds their snapshot, and restores it.

Files are restored to the start of a run that is rolled back, or of a turn that is regenerated. Before a turn
is regenerated, the current files are kept as the new run's snapshot: rolling that run back restores them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from deerflow.config import RunSettings
from deerflow.domain import RunRecord, RunRequest
from deerflow.errors import TooLargeError
from deerflow.files.changes import keep_end
from deerflow.files.restore import restore
from deerflow.files.snapshots import Snapshot, SnapshotLimits, SnapshotStore
from deerflow.storage import Storage

MAX_RUNS = 1000
"""How many past runs are read."""
REGENERATED_RUN = "regenerate_before_run_id"
"""Metadata of a run that regenerates a turn: the run with which that turn first began."""
FILES_RESTORED = "files_turned_back"
"""The type of the event that reports the result."""
_REGENERATED_ANSWER = "regenerate_from_run_id"
"""The same for clients that only send back DeerFlow 2's metadata: the run of the answer."""


@dataclass(frozen=True, slots=True)
class PastFiles:
    """A thread's files as they were after a run."""

    snapshot: Snapshot | None
    """None: the current files."""
    is_exact: bool = True
    """False: the files were too large to be kept, or are no longer kept."""


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """A message, as far as the files at its time depend on it."""

    run_id: str | None
    at: datetime
    ends_run: bool = False
    """It is the last message of its run."""
    is_before_tools: bool = False
    """No tool of its run had returned before it, so the run had changed nothing."""


def later_runs(runs: Sequence[RunRecord], point: HistoryPoint) -> list[str]:
    """Return the runs after a message's run, oldest first.

    Args:
        runs: The thread's runs, newest first.
    """
    ids = [run.id for run in runs]
    if point.run_id in ids:
        return ids[: ids.index(point.run_id)][::-1]
    return [run.id for run in reversed(runs) if run.created_at > point.at]


def runs_from(runs: Sequence[RunRecord], run_id: str) -> list[str] | None:
    """Return a run and those after it, oldest first; None when it no longer exists.

    A run that regenerated a turn began with the files of that turn, not with those present at its start.

    Args:
        runs: The thread's runs, newest first.
    """
    by_id = {run.id: run for run in runs}
    seen: set[str] = set()
    while run_id in by_id and run_id not in seen:
        seen.add(run_id)
        run_id = regenerated_run(by_id[run_id].request) or run_id
    ids = list(by_id)
    return ids[: ids.index(run_id) + 1][::-1] if run_id in by_id else None


def regenerated_run(request: RunRequest) -> str | None:
    """Return the run whose turn a request regenerates; None when it regenerates none."""
    if request.checkpoint_id is None:
        return None
    metadata: Mapping[str, object] = request.metadata
    named = metadata.get(REGENERATED_RUN) or metadata.get(_REGENERATED_ANSWER)
    return named if isinstance(named, str) else None


def files_after(store: SnapshotStore, later: Sequence[str], *, kept: int) -> PastFiles:
    """Return the files as they were before the first of the `later` runs that changed some.

    Args:
        kept: The minimum number of snapshots kept per thread: with fewer, none was dropped.
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


def files_at(store: SnapshotStore, runs: Sequence[RunRecord], point: HistoryPoint, *, kept: int) -> PastFiles:
    """Return the files as they were at a message, as exactly as is known.

    Args:
        runs: The thread's runs, newest first.
        kept: The minimum number of snapshots kept per thread.
    """
    if point.is_before_tools and point.run_id is not None and not point.ends_run:
        return files_before(store, runs, point.run_id, kept=kept)
    after = files_after(store, later_runs(runs, point), kept=kept)
    if point.ends_run or point.run_id is None or store.find(point.run_id) is None:
        return after
    return PastFiles(after.snapshot, is_exact=False)  # its run changed files afterwards


def files_before(store: SnapshotStore, runs: Sequence[RunRecord], run_id: str, *, kept: int) -> PastFiles:
    """Return the files as they were when the turn of a run began.

    Args:
        runs: The thread's runs, newest first.
        kept: The minimum number of snapshots kept per thread.
    """
    later = runs_from(runs, run_id)
    return PastFiles(None, False) if later is None else files_after(store, later, kept=kept)


async def roll_back_files(files: SnapshotStore, run_id: str) -> str | None:
    """Undo a run's changes to the thread's files; return the reason if that is not possible."""
    return await asyncio.to_thread(_put_back, files, run_id)


async def restore_files_before_turn(
    storage: Storage, run: RunRecord, files: SnapshotStore, settings: RunSettings
) -> str | None:
    """Undo all file changes since the turn that this run regenerates; return the reason on failure."""
    first = regenerated_run(run.request) or ""
    # Files have no fence: a stale attempt must not undo what later attempts did.
    await storage.effects.start(run.id, attempt=run.attempt, call=FILES_RESTORED.encode())
    found = await storage.runs.of_thread(run.thread_id, limit=MAX_RUNS)
    earlier = [other for other in found if other.id != run.id]
    return await asyncio.to_thread(restore_before_turn, files, earlier, first, run.id, settings)


def _put_back(files: SnapshotStore, run_id: str) -> str | None:
    try:
        snapshot = files.find(run_id)
        if snapshot is None:
            return None  # no tool that changes anything was called, or snapshots are switched off
        if snapshot.problem is not None:
            return f"The conversation was restored, but the files stay as they are: {snapshot.problem}."
        failed = restore(files, snapshot)
        keep_end(files, run_id)  # the run's changes are undone
    except OSError as error:
        return f"The conversation was restored, but not the files: {error.strerror}."
    except TooLargeError as error:
        return f"The conversation was restored, but the files stay as they are: {error}."
    if failed:
        return f"The conversation was restored, and all files but {len(failed)}: {', '.join(failed[:5])}."
    return None


def restore_before_turn(
    files: SnapshotStore, earlier: list[RunRecord], first: str, run_id: str, settings: RunSettings
) -> str | None:
    """Restore the files to the start of a run's turn; return the reason on failure.

    Args:
        earlier: The thread's other runs, newest first.
        first: The run whose turn is regenerated.
        run_id: The run that regenerates it.
    """
    kept = settings.snapshots_kept
    past = files_before(files, earlier, first, kept=kept)
    if past == PastFiles(None):
        return None  # nothing has changed since
    if past.is_exact:
        present = files.keep(run_id, SnapshotLimits(settings.snapshot_max_bytes, kept=kept))
        if present.problem is not None:
            return f"The files stay as they are, since they could not be kept first: {present.problem}."
        past = files_before(files, earlier, first, kept=kept)  # again: keeping a snapshot may drop the oldest
    if past.snapshot is None:
        return "The files stay as they are: those from before this turn are not kept any more."
    try:
        failed = restore(files, past.snapshot)
    except OSError as error:
        return f"The files could not be restored: {error.strerror}."
    except TooLargeError as error:
        return f"The files stay as they are: {error}."
    if failed:
        return f"All files were restored but {len(failed)}: {', '.join(failed[:5])}."
    return None
