"""Finds the snapshot of a thread's files at a point in its history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deerflow.domain import RunRecord, RunRequest
from deerflow.runtime.conversation import Said
from deerflow.runtime.snapshots import Snapshot, SnapshotStore
from deerflow.runtime.turns import Found

MOST_RUNS = 1000
"""How many past runs are read."""
TAKES_AGAIN = "regenerate_before_run_id"
"""Metadata of a run that regenerates a turn: the run with which that turn first began."""
_TAKES_ANSWER_AGAIN = "regenerate_from_run_id"
"""The same for clients that only send back DeerFlow 2's metadata: the run of the answer."""


@dataclass(frozen=True, slots=True)
class PastFiles:
    """A thread's files as they were after a run."""

    snapshot: Snapshot | None
    """None: the current files."""
    is_exact: bool = True
    """False: the files were too large to be kept, or are no longer kept."""


def later_runs(runs: Sequence[RunRecord], item: Said) -> list[str]:
    """Return the runs after a message's run, oldest first.

    Args:
        runs: The thread's runs, newest first.
    """
    ids = [run.id for run in runs]
    if item.run_id in ids:
        return ids[: ids.index(item.run_id)][::-1]
    return [run.id for run in reversed(runs) if run.created_at > item.at]


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
        run_id = taken_again(by_id[run_id].request) or run_id
    ids = list(by_id)
    return ids[: ids.index(run_id) + 1][::-1] if run_id in by_id else None


def taken_again(request: RunRequest) -> str | None:
    """Return the run whose turn a request regenerates; None when it regenerates none."""
    if request.checkpoint_id is None:
        return None
    metadata: Mapping[str, object] = request.metadata
    named = metadata.get(TAKES_AGAIN) or metadata.get(_TAKES_ANSWER_AGAIN)
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


def files_at(store: SnapshotStore, runs: Sequence[RunRecord], found: Found, *, kept: int) -> PastFiles:
    """Return the files as they were at a message, as exactly as is known.

    Args:
        runs: The thread's runs, newest first.
        kept: The minimum number of snapshots kept per thread.
    """
    item = found.item
    if found.is_before_tools and item.run_id is not None and not found.ends_run:
        return files_before(store, runs, item.run_id, kept=kept)
    after = files_after(store, later_runs(runs, item), kept=kept)
    if found.ends_run or item.run_id is None or store.find(item.run_id) is None:
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
