"""The schema of both databases, as the ordered revisions that lead to it.

A released revision is never edited. Each has its number as its name, in `versions/` (for alembic), and
in `sqlite/` and `postgres/` (what it does there, in plain SQL). A database of any age walks the rest.
"""

from pathlib import Path

FOLDER = Path(__file__).parent
VERSION_TABLE = "deerflow_version"
"""Where a database keeps its revision; another program in it may have the table that alembic makes."""


def known_revisions(folder: Path = FOLDER) -> list[str]:
    """Return all revisions, oldest first."""
    return sorted(path.stem for path in (folder / "postgres").glob("*.sql"))


def statements(database: str, revision: str, folder: Path = FOLDER) -> str:
    """Return what a revision does in `sqlite` or `postgres`."""
    return (folder / database / f"{revision}.sql").read_text()
