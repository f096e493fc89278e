from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from support.model_server import ScriptedModel

from deerflow.storage.sqlite.engine import Engine
from deerflow.storage.sqlite.saver import SqliteSaver


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as server:
        yield server


@pytest.fixture
async def saver(tmp_path: Path) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    engine = await Engine.open(tmp_path / "checkpoints.db")
    yield SqliteSaver(engine)
    await engine.aclose()
