"""The storage contract on a real PostgreSQL."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psycopg
import pytest
from contracts.storage_contract import StorageContract
from support.postgres import PostgresServer

from deerflow.config import DatabaseSettings, Paths
from deerflow.storage import Storage, open_storage

_SIZE = """
SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %s AND relkind = 'r'
"""


@pytest.fixture(scope="module")
def schema(postgres: PostgresServer) -> DatabaseSettings:
    return postgres.settings()


class TestPostgresStorage(StorageContract):
    @pytest.fixture
    async def storage(
        self, postgres: PostgresServer, schema: DatabaseSettings, tmp_path: Path
    ) -> AsyncIterator[Storage]:
        postgres.clean(schema)
        async with open_storage(schema, Paths(tmp_path / "home")) as storage:
            yield storage

    @pytest.fixture
    def stored_bytes(self, schema: DatabaseSettings) -> Callable[[], int]:
        def size() -> int:
            with psycopg.connect(schema.postgres_url) as connection:
                row = connection.execute(_SIZE, (schema.postgres_schema,)).fetchone()
            assert row is not None
            return int(row[0])

        return size
