"""How checkpoints learn whose attempt writes them."""

FENCE = "__deerflow_fence__"
"""The key of a graph's `configurable` under which its checkpoints learn whose attempt writes them."""


def fence(run_id: str, attempt: int) -> dict[str, tuple[str, int]]:
    """Return what to add to `configurable` so that checkpoints of a stale attempt are refused."""
    return {FENCE: (run_id, attempt)}
