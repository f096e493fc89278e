"""A copy of a thread is there whole, or not at all."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from deerflow.config import DatabaseSettings, Paths
from deerflow.domain import ThreadFolders
from deerflow.errors import ConflictError, NotFoundError
from deerflow.files.copying import copy_thread
from deerflow.storage import Storage, open_storage


@pytest.fixture
def folders(tmp_path: Path) -> tuple[ThreadFolders, ThreadFolders]:
    source, target = (ThreadFolders(name, tmp_path / name) for name in ("t1", "t2"))
    source.create()
    (source.workspace / "note.txt").write_text("mine")
    return source, target


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Storage]:
    async with open_storage(DatabaseSettings(), Paths(tmp_path / "home")) as storage:
        yield storage


async def test_a_copy_has_the_files_and_what_is_known_of_the_thread(
    storage: Storage, folders: tuple[ThreadFolders, ThreadFolders]
) -> None:
    await storage.threads.create("t1", "me", {"kind": "x"})
    thread = await storage.threads.update("t1", title="Deer", asks=True)

    copied = await copy_thread(storage, thread, *folders)

    assert (copied.id, copied.user_id, copied.title, copied.asks) == ("t2", "me", "Deer", True)
    assert copied.metadata == {"kind": "x"}
    assert (folders[1].workspace / "note.txt").read_text() == "mine"


async def test_a_copy_that_fails_half_way_leaves_nothing(
    storage: Storage, folders: tuple[ThreadFolders, ThreadFolders]
) -> None:
    thread = await storage.threads.create("t1", "me", {})
    place = {"configurable": {"thread_id": "t2", "checkpoint_ns": ""}}
    await storage.checkpoints.aput(place, empty_checkpoint(), {}, {})  # its states have no room there

    with pytest.raises(ConflictError, match="checkpoints already"):
        await copy_thread(storage, thread, *folders)

    with pytest.raises(NotFoundError):
        await storage.threads.get("t2")
    assert not folders[1].root.exists()
