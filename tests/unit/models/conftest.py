"""What the tests of the models share."""

import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from deerflow.models.pool import SessionPool

TLS = ssl.create_default_context()
MARKERS = (
    "benchmark: a standard test that could measure time",
    "vcr: a standard test that could replay traffic",
)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> None:
    """Register the marks of LangChain's standard tests, whose plug-ins are switched off here."""
    registered = parent.config.getini("markers")
    for marker in MARKERS:
        if marker not in registered:
            parent.config.addinivalue_line("markers", marker)


@pytest.fixture
def benchmark() -> Callable[[Callable[[], object]], object]:
    """Run what a standard test would measure, once and unmeasured."""
    return lambda function: function()


@pytest.fixture
async def sdk_clients() -> AsyncIterator[dict[str, Any]]:
    """Return HTTP clients for the SDK that end with the test; LangChain's own would outlive its loop."""
    clients = {
        "http_client": openai.DefaultHttpxClient(verify=TLS),
        "http_async_client": openai.DefaultAsyncHttpxClient(verify=TLS),
    }
    yield clients
    clients["http_client"].close()
    await clients["http_async_client"].aclose()


@pytest.fixture
async def pool() -> AsyncIterator[SessionPool]:
    """Return connections that are closed after the test."""
    connections = SessionPool()
    yield connections
    await connections.aclose()
