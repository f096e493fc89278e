"""The desk that the offline model's tests work at."""

from pathlib import Path

import pytest
from unit.models.offline.desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    for name in ("uploads", "workspace", "outputs"):
        (tmp_path / name).mkdir()
    return Desk(tmp_path)
