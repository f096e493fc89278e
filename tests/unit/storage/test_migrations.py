"""A database of any age is brought up to date, and one that is not ours is left alone."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deerflow.config import DatabaseSettings, Paths
from deerflow.domain import RunStatus, ThreadStatus
from deerflow.errors import ConfigError
from deerflow.storage import open_storage
from deerflow.storage.migrations import FOLDER, VERSION_TABLE, known_revisions
from deerflow.storage.sql.checkpoint_shapes import spread
from deerflow.storage.sqlite.connect import connect
from deerflow.storage.sqlite.migrations import APPLICATION_ID, MIGRATIONS, migrate

# A database as version 1 left it, in its own words: kept for ever, never adapted to later code.
VERSION_1 = Path(__file__).with_name("version_1.sql")


def version_of(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
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


async def test_a_database_of_version_1_is_upgraded_with_everything_in_it(
    database: Callable[[str], Path], tmp_path: Path
) -> None:
    path = database(VERSION_1.read_text())
    assert version_of(path) == 1

    async with open_storage(DatabaseSettings(), Paths(tmp_path)) as storage:
        thread = await storage.threads.get("t1", "ann")
        run = await storage.runs.get("r1", "t1")
        events = await storage.events.read("r1")
        pieces = await storage.events.fragments("t1", [1])
        head = await storage.checkpoints.aget_tuple(
            {"configurable": {"thread_id": "t1", "checkpoint_ns": ""}}
        )
        item = await storage.store.aget(("users", "ann"), "colour")

    assert (thread.title, thread.metadata, thread.status) == ("Deer", {"topic": "deer"}, ThreadStatus.IDLE)
    assert (run.status, run.attempt, run.request.user_id) == (RunStatus.SUCCESS, 1, "ann")
    assert [(event.seq, event.kind, event.body) for event in events] == [
        (0, "values", b"\x011\x01"),
        (1, "end", b"null"),
    ]
    assert pieces == {1: b'{"content":"hi"}'}
    assert head is not None
    assert head.checkpoint["channel_values"] == {"title": "Deer", "note": "deer " * 200}
    assert head.pending_writes == [("11111111-2222-3333-4444-555555555555", "messages", "hello")]
    assert head.metadata["source"] == "loop"
    assert item is not None
    assert item.value == {"value": "green"}
    assert version_of(path) == len(MIGRATIONS) + len(known_revisions()) - 1


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """Return a folder with nothing but the revision at which alembic took over."""
    folder = tmp_path / "first"
    for name in ("sqlite", "postgres"):
        (folder / name).mkdir(parents=True)
        shutil.copy(FOLDER / name / "0001.sql", folder / name)
    return folder


def test_steps_are_applied_in_order_once_and_each_in_its_own_transaction(tmp_path: Path, first: Path) -> None:
    path = tmp_path / "x.db"
    connection = connect(path)
    migrate(connection, path, steps=("CREATE TABLE a (x)",), folder=first)

    migrate(
        connection,
        path,
        steps=("CREATE TABLE a (x)", "CREATE TABLE b (x); INSERT INTO b VALUES (1)"),
        folder=first,
    )
    with pytest.raises(sqlite3.OperationalError):
        migrate(
            connection,
            path,
            steps=("", "", "CREATE TABLE c (x); INSERT INTO nowhere VALUES (1)"),
            folder=first,
        )

    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master ORDER BY name")]
    connection.close()
    assert tables == ["a", "b"]
    assert version_of(path) == 2


@pytest.fixture
def revisions(tmp_path: Path) -> Path:
    """Return a folder with one revision more than there is."""
    folder = tmp_path / "100% migrations"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "v9999_notes.py").write_text(
        "from deerflow.storage.migrations.steps import apply\n"
        f"revision, down_revision = '9999', '{known_revisions()[-1]}'\n"
        "def upgrade():\n    apply(revision)\n"
    )
    for name in ("sqlite", "postgres"):
        (folder / name / "9999.sql").write_text(
            "CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('50%: a :colon')"
        )
    return folder


def test_a_file_walks_later_revisions_whether_it_is_old_or_new(tmp_path: Path, revisions: Path) -> None:
    notes = []
    for name in ("old.db", "new.db"):
        connection = connect(tmp_path / name)
        if name == "old.db":
            connection.executescript(VERSION_1.read_text())
        for _ in range(2):
            migrate(connection, tmp_path / name, folder=revisions)
        notes.append(
            (
                connection.execute("SELECT text FROM notes").fetchall(),
                connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchall(),
                version_of(tmp_path / name),
            )
        )
        connection.close()

    newest = len(MIGRATIONS) + len(known_revisions(revisions)) - 1
    assert notes == [([("50%: a :colon",)], [("9999",)], newest)] * 2


def test_a_revision_that_fails_leaves_the_file_as_it_was(tmp_path: Path, revisions: Path) -> None:
    path = tmp_path / "x.db"
    connection = connect(path)
    migrate(connection, path)
    before = version_of(path)
    (revisions / "sqlite" / "9999.sql").write_text("CREATE TABLE notes (x); INSERT INTO nowhere VALUES (1)")

    with pytest.raises(Exception, match="nowhere"):
        migrate(connection, path, folder=revisions)

    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
    connection.close()
    assert version_of(path) == before
    assert "notes" not in tables


def test_ids_that_were_texts_become_bytes(tmp_path: Path, first: Path) -> None:
    path = tmp_path / "x.db"
    connection = connect(path)
    migrate(connection, path, steps=MIGRATIONS[:3], folder=first)
    connection.execute(
        "INSERT INTO checkpoints (chain, id, parent, shape, run, body) "
        "VALUES (1, 'odd', NULL, 1, 'r1', x'00')"
    )
    connection.execute("INSERT INTO writes (chain, checkpoint, task, path, body) VALUES (1,'odd','t','',x'')")

    migrate(connection, path)

    ids = connection.execute(
        "SELECT checkpoints.id, parent, run, task FROM checkpoints JOIN writes ON checkpoint = checkpoints.id"
    ).fetchone()
    connection.close()
    assert [part if part is None else spread(part) for part in ids] == ["odd", None, "r1", "t"]


def test_a_start_without_anything_to_do_does_not_load_alembic(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from deerflow.storage.sqlite.engine import SqliteEngine\n"
        "engine = SqliteEngine(Path(sys.argv[1])); engine._close()\n"
        "print([name for name in ('alembic', 'sqlalchemy', 'psycopg') if name in sys.modules])"
    )

    said = [subprocess.check_output([sys.executable, "-c", script, tmp_path / "x.db"]) for _ in range(2)]

    assert said == [b"[]\n"] * 2


async def test_a_newer_database_is_refused_and_left_alone(
    database: Callable[[str], Path], tmp_path: Path
) -> None:
    path = database(
        f"CREATE TABLE x (y); PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 9999;"
    )

    with pytest.raises(ConfigError, match="newer DeerFlow"):
        async with open_storage(DatabaseSettings(), Paths(tmp_path)):
            pass

    assert version_of(path) == 9999


async def test_the_database_of_another_program_is_refused_and_left_alone(
    database: Callable[[str], Path], tmp_path: Path
) -> None:
    path = database("CREATE TABLE checkpoints (thread_id TEXT); INSERT INTO checkpoints VALUES ('mine');")

    with pytest.raises(ConfigError, match=r"database\.sqlite_dir"):
        async with open_storage(DatabaseSettings(), Paths(tmp_path)):
            pass

    connection = sqlite3.connect(path)
    assert connection.execute("SELECT * FROM checkpoints").fetchall() == [("mine",)]
    connection.close()
