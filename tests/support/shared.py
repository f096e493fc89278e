"""Fixtures for tests that share one gateway and one scripted model, as each file says with which settings."""

from collections.abc import Iterator
from typing import Any, Literal

import pytest
from support.gateway import Gateway, running_gateway
from support.model_server import ScriptedModel


def shared_gateway(scope: Literal["module", "session"] = "module", **sections: Any) -> Any:
    """Return a fixture: one gateway with these settings, beside the scripted model `server`."""

    @pytest.fixture(scope=scope)
    def gateway(tmp_path_factory: pytest.TempPathFactory, server: ScriptedModel) -> Iterator[Gateway]:
        with running_gateway(tmp_path_factory.mktemp("home"), server.base_url, **sections) as running:
            yield running

    return gateway


@pytest.fixture
def fresh_model(server: ScriptedModel) -> ScriptedModel:
    """Return the shared model, with nothing to say yet."""
    server.reset()
    return server
