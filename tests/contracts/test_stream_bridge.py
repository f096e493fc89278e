"""The stream bridge contract on a SQLite file that two processes have open."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from contracts.stream_bridge_contract import StreamBridgeContract

from deerflow.config import DatabaseSettings, Paths
from deerflow.storage import Storage, open_storage


class TestSqliteStreamBridge(StreamBridgeContract):
    @pytest.fixture
    async def storage(self, tmp_path: Path) -> AsyncIterator[Storage]:
        async with open_storage(DatabaseSettings(), Paths(tmp_path / "home")) as storage:
            yield storage

    @pytest.fixture
    async def elsewhere(self, storage: Storage, tmp_path: Path) -> AsyncIterator[Storage]:
        async with open_storage(DatabaseSettings(), Paths(tmp_path / "home")) as other:
            yield other
