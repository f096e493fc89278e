"""Nothing changes a thread's files before they are kept."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deerflow.config import DatabaseSettings, Paths, RunSettings
from deerflow.domain import RunRequest
from deerflow.errors import StorageError
from deerflow.files.snapshots import RunEffects, SnapshotStore
from deerflow.storage import Storage, open_storage


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Storage]:
    async with open_storage(DatabaseSettings(backend="memory"), Paths(tmp_path)) as storage:
        yield storage


async def test_no_call_may_begin_before_the_files_are_kept(storage: Storage, tmp_path: Path) -> None:
    folders = Paths(tmp_path).thread("ann", "t1")
    folders.create()
    files = SnapshotStore(folders)
    run = await storage.runs.create("r1", RunRequest("t1", user_id="ann"), owner="me")
    effects = RunEffects(
        log=storage.effects, run=run, files=files, settings=RunSettings(), prepare=folders.create
    )
    in_the_way = folders.root / "snapshots"
    in_the_way.write_text("as good as a full disk: nothing can be written here")

    for call in (b"first", b"second"):
        with pytest.raises(StorageError, match="could not be kept"):
            await effects.start(call)
    in_the_way.unlink()
    earlier = await effects.start(b"third")

    assert earlier is None
    assert files.find("r1") is not None
    await effects.aclose()
