"""What the tests of the models share."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from deerflow.models.pool import SessionPool

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
async def pool() -> AsyncIterator[SessionPool]:
    """Return connections that are closed after the test."""
    connections = SessionPool()
    yield connections
    await connections.aclose()
