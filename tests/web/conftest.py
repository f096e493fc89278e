"""The built page, served by a real gateway beside a scripted model, in a real browser.

Gateway and browser are started once for all tests here; each test has threads and a profile of its own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gateway import Gateway
from support.model_server import ScriptedModel
from support.shared import fresh_model, shared_gateway
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
def server() -> Iterator[ScriptedModel]:
    """Return a scripted model for all tests here."""
    with ScriptedModel() as scripted:
        yield scripted


gateway = shared_gateway(
    "session",
    sandbox={"use": "local", "allow_host_bash": True},
    guardrails={
        "rules": [
            {"tool": "bash", "pattern": "may-i", "action": "ask"},
            {"tool": "bash", "action": "allow"},
        ]
    },
)
model = fresh_model


@pytest.fixture
def page(chromium: Browser, gateway: Gateway) -> Iterator[Browser]:
    """Return the page, opened; nothing that must not happen may have happened at the end."""
    chromium.open(gateway.url)
    yield chromium
    assert chromium.troubles == []
    chromium.do("goto", url="about:blank")
