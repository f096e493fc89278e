"""The built page, served by a real gateway beside a scripted model, in a real browser.

Gateway and browser are started once for all tests here; each test has threads and a profile of its own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gateway import Gateway, running_gateway
from support.model_server import ScriptedModel
from web.browser import Browser, PageUnavailableError, build_page, find_chromium

SETUP_SECONDS = 900
"""On a fresh machine the first test here may install Chromium and build the page."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(SETUP_SECONDS))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Return one Chromium for all tests, the page built."""
    try:
        build_page()
        browser = Browser(find_chromium())
    except PageUnavailableError as reason:
        pytest.skip(str(reason))
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def shared_model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as scripted:
        yield scripted


@pytest.fixture(scope="session")
def gateway(
    chromium: Browser, shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    sandbox = {"use": "local", "allow_host_bash": True}
    guardrails = {
        "rules": [
            {"tool": "bash", "pattern": "may-i", "action": "ask"},
            {"tool": "bash", "action": "allow"},
        ]
    }
    home = tmp_path_factory.mktemp("home")
    with running_gateway(home, shared_model.base_url, sandbox=sandbox, guardrails=guardrails) as running:
        yield running


@pytest.fixture
def model(shared_model: ScriptedModel) -> ScriptedModel:
    """Return the scripted model, with nothing to say yet."""
    shared_model.reset()
    return shared_model


@pytest.fixture
def page(chromium: Browser, gateway: Gateway) -> Iterator[Browser]:
    """Return the page, opened; nothing that must not happen may have happened at the end."""
    chromium.open(gateway.url)
    yield chromium
    assert chromium.troubles == []
    chromium.do("goto", url="about:blank")
