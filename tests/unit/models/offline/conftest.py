"""The session that the offline model's tests work at."""

from pathlib import Path

import pytest
from unit.models.offline.session import OfflineSession


@pytest.fixture
def session(tmp_path: Path) -> OfflineSession:
    for name in ("uploads", "workspace", "outputs"):
        (tmp_path / name).mkdir()
    return OfflineSession(tmp_path)
