"""The stream bridge contract on a PostgreSQL that two processes share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from contracts.stream_bridge_contract import StreamBridgeContract
from support.postgres import PostgresServer

from deerflow.config import DatabaseSettings, Paths
from deerflow.storage import Storage, open_storage


@pytest.fixture(scope="module")
def schema(postgres: PostgresServer) -> DatabaseSettings:
    return postgres.settings()


class TestPostgresStreamBridge(StreamBridgeContract):
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
        async with open_storage(schema, Paths(tmp_path / "other")) as other:
            yield other
