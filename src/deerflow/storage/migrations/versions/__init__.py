"""The revisions, as alembic finds them."""
