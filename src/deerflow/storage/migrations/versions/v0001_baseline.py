"""Everything as it was when revisions began; a SQLite file is brought here by the steps of its early days."""

from deerflow.storage.migrations.steps import apply, apply_procrastinate

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make all tables."""
    apply(revision)
    apply_procrastinate()
