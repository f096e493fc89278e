"""A database of any age is upgraded, and one that is not ours is refused."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.postgres import PostgresServer

from deerflow.config import DatabaseSettings, Paths
from deerflow.errors import ConfigError
from deerflow.storage import open_storage
from deerflow.storage.migrations import FOLDER, VERSION_TABLE, known_revisions
from deerflow.storage.postgres.connection import first_connection, target_of
from deerflow.storage.postgres.engine import migrate as migrate_postgres
from deerflow.storage.sqlite.connection import APPLICATION_ID, connect, migrate


def revision_of(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        return str(connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()[0])
    finally:
        connection.close()


@pytest.fixture
def database(tmp_path: Path) -> Callable[[str], Path]:
    def made(script: str) -> Path:
        path = Paths(tmp_path).database
        path.parent.mkdir(parents=True)
        connection = sqlite3.connect(path)
        connection.executescript(script)
        connection.close()
        return path

    return made


@pytest.fixture
def revisions(tmp_path: Path) -> Path:
    """Return a folder with one revision more than there is."""
    folder = tmp_path / "100% migrations"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "v9999_notes.py").write_text(
        "from deerflow.storage.migrations.upgrade import apply\n"
        f"revision, down_revision = '9999', '{known_revisions()[-1]}'\n"
        "def upgrade():\n    apply(revision)\n"
    )
    for name in ("sqlite", "postgres"):
        (folder / name / "9999.sql").write_text(
            "CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('50%: a :colon')"
        )
    return folder


def test_old_and_new_files_get_later_revisions_once(tmp_path: Path, revisions: Path) -> None:
    notes = []
    for name in ("old.db", "new.db"):
        connection = connect(tmp_path / name)
        if name == "old.db":
            migrate(connection, tmp_path / name)
        for _ in range(2):
            migrate(connection, tmp_path / name, folder=revisions)
        notes.append(connection.execute("SELECT text FROM notes").fetchall())
        connection.close()

    assert notes == [[("50%: a :colon",)]] * 2
    assert [revision_of(tmp_path / name) for name in ("old.db", "new.db")] == ["9999", "9999"]


@pytest.mark.parametrize("is_new", [True, False])
def test_a_revision_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, revisions: Path, is_new: bool
) -> None:
    path = tmp_path / "x.db"
    connection = connect(path)
    if not is_new:
        migrate(connection, path)
    tables = "SELECT name FROM sqlite_master ORDER BY name"
    before = connection.execute(tables).fetchall()
    (revisions / "sqlite" / "9999.sql").write_text("CREATE TABLE notes (x); INSERT INTO nowhere VALUES (1)")

    with pytest.raises(Exception, match="nowhere"):
        migrate(connection, path, folder=revisions)

    assert connection.execute(tables).fetchall() == before
    connection.close()
    assert is_new or revision_of(path) == known_revisions()[-1]


def test_a_postgres_database_gets_later_revisions(postgres: PostgresServer, revisions: Path) -> None:
    target = target_of(postgres.settings())
    with first_connection(target) as connection:
        migrate_postgres(target, connection)
        for _ in range(2):
            migrate_postgres(target, connection, folder=revisions)

        assert connection.execute("SELECT text FROM notes").fetchall() == [("50%: a :colon",)]
        assert connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchall() == [("9999",)]


def test_a_start_without_an_upgrade_does_not_load_alembic(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from deerflow.storage.sqlite.engine import SqliteEngine\n"
        "engine = SqliteEngine(Path(sys.argv[1])); engine._close()\n"
        "print([name for name in ('alembic', 'sqlalchemy', 'psycopg') if name in sys.modules])"
    )

    output = [subprocess.check_output([sys.executable, "-c", script, tmp_path / "x.db"]) for _ in range(2)]

    assert output == [b"[]\n"] * 2


async def test_a_newer_database_is_refused_unchanged(database: Callable[[str], Path], tmp_path: Path) -> None:
    path = database(
        f"CREATE TABLE {VERSION_TABLE} (version_num TEXT); INSERT INTO {VERSION_TABLE} VALUES ('9999');"
        f"PRAGMA application_id = {APPLICATION_ID};"
    )

    with pytest.raises(ConfigError, match="newer DeerFlow"):
        async with open_storage(DatabaseSettings(), Paths(tmp_path)):
            pass

    assert revision_of(path) == "9999"


async def test_the_database_of_another_program_is_refused_unchanged(
    database: Callable[[str], Path], tmp_path: Path
) -> None:
    path = database("CREATE TABLE checkpoints (thread_id TEXT); INSERT INTO checkpoints VALUES ('mine');")

    with pytest.raises(ConfigError, match=r"database\.sqlite_dir"):
        async with open_storage(DatabaseSettings(), Paths(tmp_path)):
            pass

    connection = sqlite3.connect(path)
    assert connection.execute("SELECT * FROM checkpoints").fetchall() == [("mine",)]
    connection.close()
