"""One gateway for all tests of a module; every test has threads of its own."""

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
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


@pytest.fixture
async def api(site: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with site.client() as client:
        yield client


@pytest.fixture
def thread() -> str:
    """The name of a thread that no other test has."""
    return new_id()
