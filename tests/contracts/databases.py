"""The databases that contracts are kept on; a contract's test class takes one of them as its first base."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.postgres import PostgresServer

from deerflow.config import DatabaseSettings, Paths
from deerflow.storage import Storage, open_storage


class OnSqlite:
    """A file of each test's own, which a second process may have open too."""

    @pytest.fixture
    async def storage(self, tmp_path: Path) -> AsyncIterator[Storage]:
        async with open_storage(DatabaseSettings(), Paths(tmp_path / "home")) as storage:
            yield storage

    @pytest.fixture
    async def elsewhere(self, storage: Storage, tmp_path: Path) -> AsyncIterator[Storage]:
        """The same database, as another process has it."""
        async with open_storage(DatabaseSettings(), Paths(tmp_path / "home")) as other:
            yield other


class OnPostgres:
    """A schema for all tests of a class, emptied before each of them."""

    @pytest.fixture(scope="class")
    @classmethod
    def schema(cls, postgres: PostgresServer) -> DatabaseSettings:
        return postgres.settings()

    @pytest.fixture
    async def storage(
        self, postgres: PostgresServer, schema: DatabaseSettings, tmp_path: Path
    ) -> AsyncIterator[Storage]:
        postgres.clean(schema)
        async with open_storage(schema, Paths(tmp_path / "home")) as storage:
            yield storage

    @pytest.fixture
    async def elsewhere(
        self, storage: Storage, schema: DatabaseSettings, tmp_path: Path
    ) -> AsyncIterator[Storage]:
        """The same database, as another process has it."""
        async with open_storage(schema, Paths(tmp_path / "other")) as other:
            yield other
