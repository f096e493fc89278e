"""Restores a thread's files: to the start of a run that is rolled back, or of a turn that is regenerated.

Before a turn is regenerated, the current files are kept as the new run's snapshot: rolling that run back
restores them.
"""

import asyncio

from deerflow.config import RunSettings
from deerflow.domain import RunRecord
from deerflow.errors import TooLargeError
from deerflow.runtime.changes import keep_end
from deerflow.runtime.past_files import MOST_RUNS, PastFiles, files_before, taken_again
from deerflow.runtime.restore import restore
from deerflow.runtime.snapshots import SnapshotLimits, SnapshotStore
from deerflow.storage import Storage

FILES_TURNED_BACK = "files_turned_back"
"""The type of the event that reports the result."""


async def put_files_back(files: SnapshotStore, run_id: str) -> str | None:
    """Undo a run's changes to the thread's files; return the reason if that is not possible."""
    return await asyncio.to_thread(_put_back, files, run_id)


async def turn_files_back(
    storage: Storage, run: RunRecord, files: SnapshotStore, settings: RunSettings
) -> str | None:
    """Undo all file changes since the turn that this run regenerates; return the reason on failure."""
    first = taken_again(run.request) or ""
    # Files have no fence: a stale attempt must not undo what later attempts did.
    await storage.effects.start(run.id, attempt=run.attempt, call=FILES_TURNED_BACK.encode())
    found = await storage.runs.of_thread(run.thread_id, limit=MOST_RUNS)
    earlier = [other for other in found if other.id != run.id]
    return await asyncio.to_thread(turn_back, files, earlier, first, run.id, settings)


def _put_back(files: SnapshotStore, run_id: str) -> str | None:
    try:
        snapshot = files.find(run_id)
        if snapshot is None:
            return None  # no tool that changes anything was called, or snapshots are switched off
        if snapshot.problem is not None:
            return f"The conversation was put back, but the files stay as they are: {snapshot.problem}."
        failed = restore(files, snapshot)
        keep_end(files, run_id)  # the run's changes are undone
    except OSError as error:
        return f"The conversation was put back, but not the files: {error.strerror}."
    except TooLargeError as error:
        return f"The conversation was put back, but the files stay as they are: {error}."
    if failed:
        return f"The conversation was put back, and all files but {len(failed)}: {', '.join(failed[:5])}."
    return None


def turn_back(
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
        return f"The files could not be put back: {error.strerror}."
    except TooLargeError as error:
        return f"The files stay as they are: {error}."
    if failed:
        return f"All files were put back but {len(failed)}: {', '.join(failed[:5])}."
    return None
