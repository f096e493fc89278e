"""Baseline: the schema when revisions began; older SQLite files reach it by `sqlite/migrations.py`."""

from deerflow.storage.migrations.steps import apply, apply_procrastinate

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    apply(revision)
    apply_procrastinate()
