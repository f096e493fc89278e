"""Everything as it was when revisions began."""

from alembic import op

from deerflow.storage.migrations.steps import apply, apply_procrastinate

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make all tables; a SQLite file is brought here by the steps of its earlier days."""
    apply(revision)
    if op.get_bind().dialect.name == "postgresql":
        apply_procrastinate()
