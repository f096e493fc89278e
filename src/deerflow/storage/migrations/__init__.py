"""The schema of both databases, as ordered revisions.

A released revision is never edited. Each is named by its number, with a script in `versions/` (for
alembic) and its plain SQL in `sqlite/` and `postgres/`. A new database runs the plain SQL of all revisions,
since alembic is slow to load; alembic upgrades an older one by the revisions that it lacks.
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


def creation_script(database: str, folder: Path = FOLDER) -> str:
    """Return the SQL that creates all tables, and alembic's table with the newest revision."""
    revisions = known_revisions(folder)
    version = (
        f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) PRIMARY KEY);\n"
        f"INSERT INTO {VERSION_TABLE} VALUES ('{revisions[-1]}')"
    )
    return ";\n".join([*(statements(database, name, folder) for name in revisions), version])
