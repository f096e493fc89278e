"""A real gateway beside a scripted model."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from support.gateway import Gateway, running_gateway
from support.model_server import ScriptedModel


@pytest.fixture
def gateway(tmp_path: Path, model: ScriptedModel) -> Iterator[Gateway]:
    with running_gateway(tmp_path, model.base_url) as running:
        yield running


@pytest.fixture
async def api(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway.client() as client:
        yield client
