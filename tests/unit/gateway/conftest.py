"""One gateway for all tests of a module; every test has threads of its own."""

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from support.documented import Documented
from support.gateway import Gateway, running_gateway
from support.model_server import ScriptedModel

from deerflow.domain import new_id


@pytest.fixture(scope="module")
def scripted() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, scripted: ScriptedModel) -> Iterator[Gateway]:
    with running_gateway(tmp_path_factory.mktemp("site"), scripted.base_url) as running:
        yield running


@pytest.fixture(scope="session")
def documented() -> Documented:
    return Documented()


@pytest.fixture
async def api(site: Gateway, documented: Documented) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client whose answers are held against the OpenAPI document."""
    documented.problems.clear()
    async with site.client(event_hooks={"response": [documented.check]}) as client:
        yield client
    assert documented.problems == []


@pytest.fixture
def thread() -> str:
    """The name of a thread that no other test has."""
    return new_id()
