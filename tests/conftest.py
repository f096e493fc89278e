"""Fixtures that every kind of test may use."""

from collections.abc import Iterator

import pytest
from support.model_server import ScriptedModel


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    """Return a scripted model on real HTTP, with nothing to say yet."""
    with ScriptedModel() as scripted:
        yield scripted
