"""Processes on one database notice when they do not share their files."""

import asyncio
from pathlib import Path

import pytest
from langgraph.store.memory import InMemoryStore

from deerflow.config import Paths
from deerflow.files.home_marker import home_problem


@pytest.fixture
def store() -> InMemoryStore:
    return InMemoryStore()


async def test_one_home_is_right_however_it_is_called(tmp_path: Path, store: InMemoryStore) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "home")
    homes = [Paths(tmp_path / name) for name in ("home", "link", "home")]

    assert [await home_problem(store, home, remember=True) for home in homes] == [None] * 3


async def test_many_that_start_at_once_agree(tmp_path: Path, store: InMemoryStore) -> None:
    said = await asyncio.gather(*(home_problem(store, Paths(tmp_path), remember=True) for _ in range(20)))

    assert said == [None] * 20


async def test_another_home_is_told_once(tmp_path: Path, store: InMemoryStore) -> None:
    old, new = Paths(tmp_path / "old"), Paths(tmp_path / "new")
    await home_problem(store, old, remember=True)

    asked = [await home_problem(store, new, remember=remember) for remember in (False, True, True)]

    assert str(old.users) in (asked[0] or "")
    assert "DEER_FLOW_HOME" in (asked[1] or "")
    assert asked[2] is None
