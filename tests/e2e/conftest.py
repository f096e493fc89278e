"""A real gateway beside a scripted model, and a thread.

A file whose tests can share a gateway says `gateway = shared_gateway(...)` (support/shared.py), beside the
model `server`; what hangs on `gateway` then hangs on that one.
"""

import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from support.documented import Documented
from support.gateway import Gateway, running_gateway
from support.model_server import ScriptedModel

from deerflow.domain import new_id

SECONDS = 400
"""How long a test may take: some start a server three times, and the machine may be busy."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedModel]:
    """Return a scripted model for all tests of a file."""
    with ScriptedModel() as scripted:
        yield scripted


@pytest.fixture
def gateway(tmp_path: Path, model: ScriptedModel) -> Iterator[Gateway]:
    with running_gateway(tmp_path, model.base_url) as running:
        yield running


@pytest.fixture(scope="session")
def documented() -> Documented:
    return Documented()


@pytest.fixture
async def api(gateway: Gateway, documented: Documented) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client whose answers are held against the OpenAPI document."""
    documented.problems.clear()
    async with gateway.client(event_hooks={"response": [documented.check]}) as client:
        yield client
    assert documented.problems == []


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Return a gate for a held answer; it is opened at the end, however the test went."""
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.fixture
async def thread(api: httpx.AsyncClient) -> str:
    """Return the id of a thread that no other test has."""
    created = await api.post("/threads", json={"thread_id": new_id()})
    return str(created.json()["thread_id"])
