"""The schema of both databases, as the ordered revisions that lead to it.

A released revision is never edited. Each is a number with the same name in `versions/` (for alembic),
`sqlite/` and `postgres/` (what it does there, in plain SQL). A database of any age walks the rest.
"""

from pathlib import Path

FOLDER = Path(__file__).parent
VERSION_TABLE = "deerflow_version"
"""Where a database keeps its revision; other programs in it may have a table of alembic's own."""


def known_revisions() -> list[str]:
    """Return all revisions, oldest first."""
    return sorted(path.stem for path in (FOLDER / "postgres").glob("*.sql"))


def statements(database: str, revision: str) -> str:
    """Return what a revision does in `sqlite` or `postgres`."""
    return (FOLDER / database / f"{revision}.sql").read_text()


NEWEST = known_revisions()[-1]
"""What a database is brought to."""
