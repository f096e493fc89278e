"""The contracts of the run manager and of what it deletes, on databases that two processes have open."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from contracts.retention_contract import RetentionContract
from contracts.run_manager_contract import RunManagerContract
from support.postgres import PostgresServer

from deerflow.config import DatabaseSettings, Paths
from deerflow.storage import Storage, open_storage


class TestSqliteRunManager(RunManagerContract):
    @pytest.fixture
    async def storage(self, tmp_path: Path) -> AsyncIterator[Storage]:
        async with open_storage(DatabaseSettings(), Paths(tmp_path)) as storage:
            yield storage

    @pytest.fixture
    async def elsewhere(self, tmp_path: Path, storage: Storage) -> AsyncIterator[Storage]:
        async with open_storage(DatabaseSettings(), Paths(tmp_path)) as elsewhere:
            yield elsewhere


class TestSqliteRetention(RetentionContract):
    @pytest.fixture
    async def storage(self, tmp_path: Path) -> AsyncIterator[Storage]:
        async with open_storage(DatabaseSettings(), Paths(tmp_path)) as storage:
            yield storage


class TestPostgresRunManager(RunManagerContract):
    @pytest.fixture
    def settings(self, postgres: PostgresServer) -> DatabaseSettings:
        return postgres.settings()

    @pytest.fixture
    async def storage(self, settings: DatabaseSettings, tmp_path: Path) -> AsyncIterator[Storage]:
        async with open_storage(settings, Paths(tmp_path)) as storage:
            yield storage

    @pytest.fixture
    async def elsewhere(
        self, settings: DatabaseSettings, tmp_path: Path, storage: Storage
    ) -> AsyncIterator[Storage]:
        async with open_storage(settings, Paths(tmp_path)) as elsewhere:
            yield elsewhere


class TestPostgresRetention(RetentionContract):
    @pytest.fixture
    async def storage(self, postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Storage]:
        async with open_storage(postgres.settings(), Paths(tmp_path)) as storage:
            yield storage
