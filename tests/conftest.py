"""Fixtures that every kind of test may use."""

from collections.abc import Iterator

import pytest
from support.model_server import ScriptedModel
from support.postgres import PostgresServer


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    """Return a scripted model on real HTTP, with nothing to say yet."""
    with ScriptedModel() as scripted:
        yield scripted


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Return a PostgreSQL server for the whole test run; a test takes a schema of its own."""
    with PostgresServer.running() as server:
        yield server
