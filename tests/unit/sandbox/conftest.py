"""Folders that the user who runs a root server's commands can reach."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A temporary folder that others may enter: pytest's own `tmp_path` is closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="deerflow-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
