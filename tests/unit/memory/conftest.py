"""MemoryService on a real database, and what was said."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deerflow.config import MemoryBackendSettings, SettingsSource
from deerflow.memory import Ask, MemoryService, MemoryTurn, PendingConversation, Scope
from deerflow.observability.logs import Redactor
from deerflow.retrieval import Index, default_embeddings
from deerflow.storage import Storage, open_storage

ANN = Scope("ann@example.org")
NOW = datetime(2026, 8, 2, 12, tzinfo=UTC)
NewConversation = Callable[..., PendingConversation]


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Storage]:
    loaded = SettingsSource(None, env={"DEER_FLOW_HOME": str(tmp_path / "home")}, cwd=tmp_path).current()
    async with open_storage(loaded.settings.database, loaded.paths, lease_seconds=30) as opened:
        yield opened


def index_of(storage: Storage) -> Index:
    """Return the index of the memories in a database."""
    return Index(storage.passages, default_embeddings())


@pytest.fixture
def memories(storage: Storage) -> MemoryService:
    return MemoryService(storage.store, index_of(storage), redact=Redactor())


@pytest.fixture
def conversation() -> NewConversation:
    """Make a conversation of some words of the user."""

    def make(
        *said: str,
        thread: str = "t1",
        scope: Scope = ANN,
        ask: Ask | None = None,
        at: datetime | None = None,
        answer: str = "I see.",
        **settings: Any,
    ) -> PendingConversation:
        turn = MemoryTurn(said, answer, at or datetime.now(UTC))
        # Shorter waits than the settings allow.
        backend = MemoryBackendSettings.model_construct(**{"debounce_seconds": 0.01, **settings})
        return PendingConversation(scope, thread, (turn,), backend, ask)

    return make
