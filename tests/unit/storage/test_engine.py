"""The engine: group commit, failures that stay with their owner, and files that cannot be used."""

import asyncio
import os
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deerflow.config import DatabaseSettings, Paths
from deerflow.domain import RunRequest
from deerflow.errors import ConfigError, InvalidInputError, StorageError
from deerflow.storage import data_folder, open_storage
from deerflow.storage.sqlite.connection import WAL_BYTES
from deerflow.storage.sqlite.engine import SqliteEngine

MAKE = "CREATE TABLE notes (n INTEGER PRIMARY KEY, text)"


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    engine = await SqliteEngine.open(tmp_path / "data" / "deerflow.db")
    await engine.write(lambda db: db.execute(MAKE) and None)
    yield engine
    await engine.aclose()


async def add(engine: SqliteEngine, text: object, **options: Any) -> int:
    def work(db: sqlite3.Connection) -> int:
        return db.execute("INSERT INTO notes (text) VALUES (?)", (text,)).lastrowid or 0

    return await engine.write(work, **options)


async def texts(engine: SqliteEngine) -> list[str]:
    return await engine.read(lambda db: [text for (text,) in db.execute("SELECT text FROM notes ORDER BY n")])


async def test_writes_are_done_in_queue_order(engine: SqliteEngine) -> None:
    numbers = await asyncio.gather(*(add(engine, number) for number in range(2000)))

    assert numbers == list(range(1, 2001))
    assert await texts(engine) == list(range(2000))


async def test_small_writes_keep_their_order_among_large_ones(engine: SqliteEngine) -> None:
    options = [{"weight": 10}, {"may_wait": True, "weight": 10}, {}, {"weight": 10**6}, {"may_wait": True}]

    await asyncio.gather(*(add(engine, number, **options[number % 5]) for number in range(500)))

    assert await texts(engine) == list(range(500))


async def test_a_small_write_is_committed_on_the_calling_thread(engine: SqliteEngine) -> None:
    await add(engine, "the log has begun")
    here, threads = threading.current_thread().name, []

    async with asyncio.timeout(60):
        while here not in threads:  # the writer thread may still hold the lock
            await engine.write(lambda db: threads.append(threading.current_thread().name), weight=10)
    await engine.write(lambda db: threads.append(threading.current_thread().name))

    assert threads[-2:] == [here, "deerflow-writer"]


async def test_a_small_write_waits_for_another_process_off_the_loop(
    engine: SqliteEngine, tmp_path: Path
) -> None:
    await add(engine, "mine")
    other = sqlite3.connect(tmp_path / "data" / "deerflow.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.ensure_future(add(engine, "later", weight=10))
    await asyncio.sleep(0.05)  # the loop goes on meanwhile
    was_done = waiting.done()
    other.execute("COMMIT")
    other.close()

    await waiting
    assert not was_done
    assert await texts(engine) == ["mine", "later"]


async def test_queued_writes_are_committed_together(engine: SqliteEngine) -> None:
    statements: list[str] = []
    held = threading.Event()

    def hold(db: sqlite3.Connection) -> None:
        db.set_trace_callback(statements.append)
        held.wait(60)

    waiting = [asyncio.ensure_future(engine.write(hold))]
    waiting += [asyncio.ensure_future(add(engine, number)) for number in range(300)]
    await asyncio.sleep(0)

    held.set()
    await asyncio.gather(*waiting)

    assert sum(statement.startswith("INSERT") for statement in statements) == 300
    assert statements.count("COMMIT") <= 2


async def test_a_write_that_fails_does_not_fail_its_group(engine: SqliteEngine) -> None:
    def bad(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO notes (text) VALUES ('half done')")
        raise InvalidInputError("no")

    outcomes = await asyncio.gather(
        add(engine, "a"), engine.write(bad), add(engine, "b"), add(engine, "\ud800"), return_exceptions=True
    )

    assert [type(outcome) for outcome in outcomes] == [int, InvalidInputError, int, InvalidInputError]
    assert await texts(engine) == ["a", "b"]


async def test_a_full_disk_fails_what_does_not_fit_and_nothing_else(engine: SqliteEngine) -> None:
    def limit(db: sqlite3.Connection) -> None:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages + 4}")

    await engine.write(limit)

    outcomes = await asyncio.gather(
        add(engine, "small"), add(engine, "x" * 100_000), add(engine, "also small"), return_exceptions=True
    )

    assert isinstance(outcomes[1], StorageError)
    assert "no space left" in str(outcomes[1])
    assert await texts(engine) == ["small", "also small"]
    await engine.write(lambda db: db.execute("PRAGMA max_page_count = 1000000") and None)
    await add(engine, "x" * 100_000)


async def test_a_cancelled_writer_does_not_disturb_the_others(engine: SqliteEngine) -> None:
    held = threading.Event()
    blocker = asyncio.ensure_future(engine.write(lambda db: held.wait(60)))
    gone = asyncio.ensure_future(add(engine, "gone"))
    stays = asyncio.ensure_future(add(engine, "stays"))
    await asyncio.sleep(0)

    gone.cancel()
    held.set()
    await asyncio.gather(blocker, stays)

    assert gone.cancelled()
    assert await texts(engine) == ["gone", "stays"]


async def test_a_read_sees_one_state_and_cannot_write(engine: SqliteEngine) -> None:
    await add(engine, "a")

    with pytest.raises(StorageError, match="read-only"):
        await engine.read(lambda db: db.execute("INSERT INTO notes (text) VALUES ('x')"))
    with pytest.raises(StorageError):
        await engine.peek(lambda db: db.execute("SELECT nothing FROM nowhere"))

    assert await texts(engine) == ["a"]


async def test_closing_finishes_every_write_and_then_refuses(tmp_path: Path) -> None:
    engine = await SqliteEngine.open(tmp_path / "x.db")
    await engine.write(lambda db: db.execute(MAKE) and None)
    waiting = [asyncio.ensure_future(add(engine, number)) for number in range(700)]
    await asyncio.sleep(0)

    await engine.aclose()
    await engine.aclose()

    assert len(await asyncio.gather(*waiting)) == 700
    for late in (add(engine, "late"), texts(engine), engine.peek(lambda db: db.execute("SELECT 1"))):
        with pytest.raises(StorageError, match="closed"):
            await late
    connection = sqlite3.connect(tmp_path / "x.db")
    assert connection.execute("SELECT count(*) FROM notes").fetchone() == (700,)
    connection.close()
    assert await asyncio.to_thread(os.listdir, tmp_path) == ["x.db"]


async def test_several_event_loops_share_one_engine(engine: SqliteEngine) -> None:
    def elsewhere(name: str) -> list[int]:
        async def run() -> list[int]:
            return await asyncio.gather(*(add(engine, name) for _ in range(50)))

        return asyncio.run(run())

    async with asyncio.TaskGroup() as group:
        for name in ("a", "b", "c"):
            group.create_task(asyncio.to_thread(elsewhere, name))

    found = await texts(engine)
    assert sorted(found) == ["a"] * 50 + ["b"] * 50 + ["c"] * 50


async def test_callers_without_a_loop_write_too(engine: SqliteEngine) -> None:
    await asyncio.to_thread(
        engine.write_blocking, lambda db: db.execute("INSERT INTO notes (text) VALUES ('x')") and None
    )

    assert await texts(engine) == ["x"]


async def test_the_write_ahead_log_stays_small(engine: SqliteEngine) -> None:
    for number in range(60):
        await add(engine, os.urandom(20_000))
        await texts(engine) if number % 10 == 0 else None
    wal = engine.path.with_name("deerflow.db-wal")

    async with asyncio.timeout(60):
        while await asyncio.to_thread(lambda: wal.stat().st_size) > 3 * WAL_BYTES:
            await add(engine, "one more commit lets the log start again")


async def test_only_the_user_may_read_the_file(engine: SqliteEngine) -> None:
    def modes() -> list[int]:
        folder = engine.path.parent
        return [stat.S_IMODE(path.stat().st_mode) for path in (folder, *sorted(folder.iterdir()))]

    assert await asyncio.to_thread(modes) == [0o700, 0o600, 0o600, 0o600]


async def test_a_damaged_file_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "deerflow.db"
    path.write_bytes(b"this is no database, " * 1000)

    with pytest.raises(ConfigError, match=r"deerflow\.db is damaged or not a SQLite file"):
        await SqliteEngine.open(path)

    assert path.read_bytes().startswith(b"this is no database")


async def test_damaged_pages_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "deerflow.db"
    engine = await SqliteEngine.open(path)
    await engine.write(lambda db: db.execute(MAKE) and None)
    for _ in range(50):
        await add(engine, "x" * 3000)
    await engine.aclose()
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xff" * 60_000)

    engine = await SqliteEngine.open(path)
    with pytest.raises(StorageError, match="damaged"):
        await texts(engine)
    await engine.aclose()


@pytest.mark.parametrize("folder", ["{tmp}/file", "{tmp}/file/deeper", "/proc", "/proc/nowhere"])
async def test_a_folder_that_cannot_be_used_names_the_setting(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(ConfigError, match=r"database\.sqlite_dir"):
        await SqliteEngine.open(Path(folder.format(tmp=tmp_path)) / "deerflow.db")


@pytest.mark.parametrize(
    ("setting", "folder"),
    [(None, "home/data"), ("elsewhere", "elsewhere"), ("home/data", "home/data"), ("{tmp}/abs", "abs")],
)
async def test_the_folder_is_the_settings_or_the_homes(
    tmp_path: Path, setting: str | None, folder: str
) -> None:
    name = None if setting is None else setting.format(tmp=tmp_path)
    settings, paths = DatabaseSettings(sqlite_dir=name), Paths(tmp_path / "home")

    async with open_storage(settings, paths) as storage:
        await storage.runs.create("r1", RunRequest("t1"))

    assert data_folder(settings, paths) == tmp_path / folder
    assert await asyncio.to_thread((tmp_path / folder / "deerflow.db").exists)
