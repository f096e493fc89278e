"""The schema of both databases, as ordered revisions.

A released revision is never edited. Each is named by its number, in `versions/` (for alembic) and in
`sqlite/` and `postgres/` (its plain SQL). A database of any age runs the revisions that it lacks.
"""

from pathlib import Path

FOLDER = Path(__file__).parent
VERSION_TABLE = "deerflow_version"
"""Table with the database's revision; another program may use alembic's default table."""


def known_revisions(folder: Path = FOLDER) -> list[str]:
    """Return all revisions, oldest first."""
    return sorted(path.stem for path in (folder / "postgres").glob("*.sql"))


def statements(database: str, revision: str, folder: Path = FOLDER) -> str:
    """Return the SQL of a revision for `sqlite` or `postgres`."""
    return (folder / database / f"{revision}.sql").read_text()
