import os
from pathlib import Path

import pytest

from deerflow.config.sandbox import LimitSettings
from deerflow.sandbox.paths import WORKSPACE, PathMapping, PathTable
from deerflow.sandbox.usage import ThreadUsage, largest


@pytest.mark.parametrize(
    ("amounts", "stopped"),
    [({1: 50, 2: 50}, []), ({1: 10, 2: 60, 3: 40}, [2]), ({1: 90, 2: 80, 3: 70}, [1, 2]), ({1: 101}, [1])],
)
def test_the_largest_go_until_the_rest_fits(amounts: dict[int, int], stopped: list[int]) -> None:
    assert largest(amounts, 100) == stopped


async def test_a_command_whose_use_cannot_be_measured_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    table = PathTable([PathMapping(WORKSPACE, tmp_path / "file")])  # a folder is what it should be

    reason = await ThreadUsage(LimitSettings(), table).watch(os.getpid())

    assert reason == "its use could not be measured"
