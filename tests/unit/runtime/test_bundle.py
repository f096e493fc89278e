"""All outputs in one list or one ZIP, and never a part of them as if it were all."""

import os
from pathlib import Path

import pytest

from deerflow.domain import ThreadFolders
from deerflow.errors import TooLargeError
from deerflow.runtime import bundle


@pytest.fixture
def folders(tmp_path: Path) -> ThreadFolders:
    made = ThreadFolders("t1", tmp_path / "t1")
    made.create()
    for name in ("b/2", "b/1", "b!", "a", "b/c/d", "c"):
        path = made.outputs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return made


def test_outputs_are_listed_in_order_of_their_paths(folders: ThreadFolders) -> None:
    listed = [found.parts for found in bundle.list_outputs(folders)]

    assert listed == sorted(listed)
    assert len(listed) == 6


def test_a_list_ends_where_it_is_long_enough(folders: ThreadFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bundle.list_outputs(folders)
    monkeypatch.setattr(bundle, "MAX_FILES", 3)

    assert bundle.list_outputs(folders) == whole[:3]
    with pytest.raises(TooLargeError, match="3 files"):
        bundle.check_bundle(folders)


def test_outputs_that_are_too_large_for_a_zip_are_refused(folders: ThreadFolders) -> None:
    bundle.check_bundle(folders)
    os.truncate(folders.outputs / "a", bundle.MAX_BYTES)  # a hole: it takes no room

    with pytest.raises(TooLargeError, match="4 GiB"):
        bundle.check_bundle(folders)
