"""Puts a thread's files back: to where a run began that is undone, or a turn that is taken again.

Before a turn is taken again, what is there is kept as the run's own snapshot: undoing that run brings it
back.
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
"""The type of the event that says what became of the files."""


async def put_files_back(files: SnapshotStore, run_id: str) -> str | None:
    """Undo what a run did to the thread's files; return why not, when that is not possible."""
    return await asyncio.to_thread(_put_back, files, run_id)


async def turn_files_back(
    storage: Storage, run: RunRecord, files: SnapshotStore, settings: RunSettings
) -> str | None:
    """Undo what happened to the files since the turn that this run takes again; return why not, if not."""
    first = taken_again(run.request) or ""
    # Files have no fence of their own: an attempt that slept must not undo what others did since.
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
        keep_end(files, run_id)  # of what was undone nothing is left
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
    """Put the files back to where the turn of a run began; return why not, if not.

    Args:
        earlier: The thread's other runs, newest first.
        first: The run whose turn is taken again.
        run_id: The run that takes it again.
    """
    kept = settings.snapshots_kept
    past = files_before(files, earlier, first, kept=kept)
    if past == PastFiles(None):
        return None  # nothing has changed since
    if past.is_exact:
        present = files.keep(run_id, SnapshotLimits(settings.snapshot_max_bytes, kept=kept))
        if present.problem is not None:
            return f"The files stay as they are, since they could not be kept first: {present.problem}."
        past = files_before(files, earlier, first, kept=kept)  # again: to keep one may drop the oldest
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
