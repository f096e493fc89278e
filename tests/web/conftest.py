"""The built page, served by a real gateway beside a scripted model, in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gateway import Gateway, running_gateway
from support.model_server import ScriptedModel
from web.browser import Browser, PageUnavailableError, build_page, find_chromium


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


@pytest.fixture
def gateway(chromium: Browser, tmp_path: Path, model: ScriptedModel) -> Iterator[Gateway]:
    sandbox = {"use": "local", "allow_host_bash": True}
    with running_gateway(tmp_path, model.base_url, sandbox=sandbox) as running:
        yield running


@pytest.fixture
def page(chromium: Browser, gateway: Gateway) -> Iterator[Browser]:
    """Return the page, opened; nothing that must not happen may have happened at the end."""
    chromium.open(gateway.url)
    yield chromium
    assert chromium.troubles == []
    chromium.do("goto", url="about:blank")
