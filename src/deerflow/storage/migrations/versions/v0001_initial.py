"""The first schema."""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Do nothing: a new database runs the plain SQL of all revisions."""
