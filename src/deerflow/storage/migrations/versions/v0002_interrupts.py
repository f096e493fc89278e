"""Store the pending interrupts of threads."""

from deerflow.storage.migrations.steps import apply

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the columns."""
    apply(revision)
