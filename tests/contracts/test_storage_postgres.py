"""The storage contract on a real PostgreSQL."""

from collections.abc import Callable

import psycopg
import pytest
from contracts.databases import OnPostgres
from contracts.storage_contract import StorageContract

from deerflow.config import DatabaseSettings

_SIZE = """
SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %s AND relkind = 'r'
"""


class TestPostgresStorage(OnPostgres, StorageContract):
    @pytest.fixture
    def stored_bytes(self, schema: DatabaseSettings) -> Callable[[], int]:
        def size() -> int:
            with psycopg.connect(schema.postgres_url) as connection:
                row = connection.execute(_SIZE, (schema.postgres_schema,)).fetchone()
            assert row is not None
            return int(row[0])

        return size
