"""The skills that runs used."""

from deerflow.storage.migrations.upgrade import apply

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column."""
    apply(revision)
