"""Delta channels on PostgreSQL: the same state as on SQLite, in few trips to the database."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from support.postgres import PostgresServer
from unit.storage.test_saver import DeltaState, PlainState, WideState, at, build, run_turns, states

from deerflow.config import Paths
from deerflow.storage import Storage, open_storage
from deerflow.storage.checkpoint_encoding import CheckpointRef
from deerflow.storage.checkpoint_rows import history
from deerflow.storage.database import Database
from deerflow.storage.postgres.database import PostgresDatabase


@pytest.fixture
async def storage(postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Storage]:
    async with open_storage(postgres.settings(), Paths(tmp_path)) as storage:
        yield storage


async def test_delta_and_plain_channels_have_the_same_history(storage: Storage) -> None:
    plain = build(PlainState, InMemorySaver())
    delta = build(DeltaState, storage.checkpoints)

    await run_turns(plain, "t1")
    await run_turns(delta, "t1")

    assert await states(delta, "t1") == await states(plain, "t1")


async def test_a_long_history_is_read_in_a_few_statements(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = build(WideState, storage.checkpoints)
    for number in range(12):
        await graph.ainvoke({"messages": [HumanMessage(f"h{number}", id=f"h{number}")]}, at("t1"))
    statements: list[str] = []
    execute = PostgresDatabase.execute

    def counted(self: PostgresDatabase, sql: str, *values: object) -> object:
        statements.append(sql)
        return execute(self, sql, *values)  # type: ignore[arg-type]

    engine = storage.checkpoints._engine

    def read(db: Database) -> object:
        return history(db, CheckpointRef("t1", ""), ["messages"])

    with monkeypatch.context() as patch:
        patch.setattr(PostgresDatabase, "execute", counted)
        await engine.read(read)
        statements.clear()
        await engine.read(read)

    assert len(statements) <= 7
