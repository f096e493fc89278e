"""Searches and lists walk an index: their cost is what they return, not what is stored."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deerflow.domain import ThreadStatus
from deerflow.storage import ThreadQuery
from deerflow.storage.sqlite.connection import SQLITE
from deerflow.storage.sqlite.engine import SqliteEngine
from deerflow.storage.threads import search_statement


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    engine = await SqliteEngine.open(tmp_path / "deerflow.db")
    yield engine
    await engine.aclose()


async def plan(engine: SqliteEngine, sql: str, values: list[Any]) -> str:
    rows = await engine.read(lambda db: db.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall())
    return " / ".join(row[3] for row in rows)


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (ThreadQuery("ann"), "threads_by_update"),
        (ThreadQuery("ann", descending=False), "threads_by_update"),
        (ThreadQuery("ann", sort_by="created_at"), "threads_by_creation"),
        (ThreadQuery("ann", status=ThreadStatus.IDLE, metadata={"a": 1}), "threads_by_update"),
    ],
)
async def test_a_search_of_threads_walks_the_index_in_its_order(
    engine: SqliteEngine, query: ThreadQuery, index: str
) -> None:
    steps = await plan(engine, *search_statement(query, SQLITE))

    assert f"USING INDEX {index} (user_id=?)" in steps
    assert "TEMP B-TREE" not in steps


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        ("SELECT body FROM events WHERE position >= 1 AND position < 2 ORDER BY position", "PRIMARY KEY"),
        ("SELECT body FROM checkpoints WHERE chain = 1 ORDER BY id DESC LIMIT 1", "checkpoints_by_id"),
        ("SELECT body FROM writes WHERE chain = 1 AND checkpoint = x'00'", "writes_by_checkpoint"),
        ("SELECT key FROM chains WHERE thread_id = 'a' OR (thread_id > 'a/' AND thread_id < 'a0')", "INDEX"),
        ("SELECT id FROM runs WHERE status IN ('pending', 'running') AND owner = 'me'", "runs_in_flight"),
    ],
)
async def test_rows_are_found_by_index(engine: SqliteEngine, sql: str, index: str) -> None:
    steps = await plan(engine, sql, [])

    assert index in steps
    assert "TEMP B-TREE" not in steps
