"""A project folder for every test of the settings."""

from pathlib import Path

import pytest
from support.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = tmp_path / "above" / "project"
    root.mkdir(parents=True)
    return Project(root)
