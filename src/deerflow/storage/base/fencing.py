"""Fencing of checkpoints: the run and attempt on whose behalf they are written."""

FENCE = "__deerflow_fence__"
"""Key in a graph's `configurable` that holds the run id and attempt for its checkpoint writes."""


def fence(run_id: str, attempt: int) -> dict[str, tuple[str, int]]:
    """Return the `configurable` entry that makes checkpoints of a stale attempt be refused."""
    return {FENCE: (run_id, attempt)}
