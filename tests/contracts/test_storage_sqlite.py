"""The storage contract on a SQLite file and on one that vanishes."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from contracts.databases import OnSqlite
from contracts.storage_contract import StorageContract

from deerflow.config import DatabaseSettings, Paths
from deerflow.storage import Storage, open_storage


def stored_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("**/deerflow.db*"))


class TestSqliteStorage(OnSqlite, StorageContract):
    @pytest.fixture
    def stored_bytes(self, tmp_path: Path) -> Callable[[], int]:
        return lambda: stored_in(tmp_path)


class TestMemoryStorage(StorageContract):
    @pytest.fixture
    async def storage(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Storage]:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        async with open_storage(DatabaseSettings(backend="memory"), Paths(tmp_path / "home")) as storage:
            yield storage
        assert stored_in(tmp_path) == 0

    @pytest.fixture
    def stored_bytes(self, tmp_path: Path) -> Callable[[], int]:
        return lambda: stored_in(tmp_path)
