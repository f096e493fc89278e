"""Fixtures of lead agents, for the conftest of each folder that tests them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from support.lead import Lead, NewLead
from support.model_server import ScriptedModel

from deerflow.storage import CheckpointSaver
from deerflow.storage.sqlite.engine import SqliteEngine


@pytest.fixture
async def saver(tmp_path: Path) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    engine = await SqliteEngine.open(tmp_path / "checkpoints.db")
    yield CheckpointSaver(engine)
    await engine.aclose()


@pytest.fixture
async def new_lead(model: ScriptedModel, tmp_path: Path) -> AsyncIterator[NewLead]:
    """Builds leads on the scripted model and closes their connections."""
    leads: list[Lead] = []

    def build(folder: str = "t1", **options: Any) -> Lead:
        leads.append(Lead(model, tmp_path / folder, **options))
        return leads[-1]

    yield build
    for lead in leads:
        await lead.models.aclose()


@pytest.fixture
def lead(new_lead: NewLead) -> Lead:
    return new_lead()
