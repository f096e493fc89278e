"""Files are kept once, restored exactly, and never outside their thread."""

import os
from pathlib import Path

import pytest

from deerflow.domain import ThreadFolders
from deerflow.files.changes import changes_of, keep_end
from deerflow.files.file_history import roll_back_files
from deerflow.files.restore import copy_files, restore
from deerflow.files.snapshots import SnapshotLimits, SnapshotStore, scan

LIMITS = SnapshotLimits(max_bytes=1_000_000, max_files=100, kept=2)


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    folders = ThreadFolders("t1", tmp_path / "t1")
    folders.create()
    return SnapshotStore(folders)


def tree(root: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[name] = ("folder", path.stat().st_mode)
        elif path.is_file():
            found[name] = ("file", path.read_bytes(), path.stat().st_mode, path.stat().st_mtime_ns)
        else:
            found[name] = ("other",)
    return found


def fill(store: SnapshotStore) -> None:
    work = store.folders.workspace
    (work / "deep/er").mkdir(parents=True)
    (work / "deep/er/a.txt").write_text("A")
    (work / "run.sh").write_text("#!/bin/sh")
    (work / "run.sh").chmod(0o755)
    (work / "empty").mkdir()
    (work / "link").symlink_to("deep/er/a.txt")
    (work / os.fsdecode(b"odd\xff\nname")).write_bytes(b"\x00\xff")
    (store.folders.outputs / "report.md").write_text("# Report")
    (store.folders.uploads / "data.csv").write_text("1,2")


def spoil(store: SnapshotStore) -> None:
    work = store.folders.workspace
    (work / "deep/er/a.txt").unlink()
    (work / "deep/er").rmdir()
    (work / "deep/er").write_text("a file in the place of a folder")
    (work / "run.sh").chmod(0o600)
    (work / "run.sh").unlink()
    (work / "run.sh").mkdir()
    (work / "run.sh/inside").write_text("x")
    (work / "empty").rmdir()
    (work / "link").unlink()
    (work / "link").symlink_to("/etc/passwd")
    os.mkfifo(work / "pipe")
    (work / "new/one").mkdir(parents=True)
    (work / "new/one/b.txt").write_text("B")
    (store.folders.outputs / "report.md").write_text("# Worse")
    (store.folders.uploads / "data.csv").write_text("3,4")


def test_everything_comes_back_exactly(store: SnapshotStore) -> None:
    fill(store)
    before = tree(store.folders.user_data)
    store.keep("r1", LIMITS)
    spoil(store)
    assert tree(store.folders.user_data) != before

    snapshot = store.find("r1")
    assert snapshot is not None
    failed = restore(store, snapshot)

    assert failed == []
    assert tree(store.folders.user_data) == before


def test_an_empty_thread_becomes_empty_again_but_new_uploads_stay(store: SnapshotStore) -> None:
    store.keep("r1", LIMITS)
    fill(store)
    (store.folders.uploads / "folder").mkdir()

    snapshot = store.find("r1")
    assert snapshot is not None
    restore(store, snapshot)

    assert sorted(tree(store.folders.user_data)) == [
        "outputs", "uploads", "uploads/data.csv", "uploads/folder", "workspace",
    ]  # fmt: skip


def test_a_link_that_leads_out_is_neither_followed_nor_written_through(
    store: SnapshotStore, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    (store.folders.workspace / "folder").mkdir()
    (store.folders.workspace / "folder/secret.txt").write_text("mine")
    store.keep("r1", LIMITS)
    (store.folders.workspace / "folder/secret.txt").unlink()
    (store.folders.workspace / "folder").rmdir()
    (store.folders.workspace / "folder").symlink_to(outside)

    snapshot = store.find("r1")
    assert snapshot is not None
    restore(store, snapshot)

    assert (outside / "secret.txt").read_text() == "secret"
    assert not (store.folders.workspace / "folder").is_symlink()
    assert (store.folders.workspace / "folder/secret.txt").read_text() == "mine"
    assert all(path.read_bytes() != b"secret" for path in store.objects.iterdir())


def test_equal_contents_are_kept_once_and_unchanged_files_not_read_again(
    store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (store.folders.workspace / name).write_text("the same")
        os.utime(store.folders.workspace / name, ns=(1, 1))
    monkeypatch.setattr("deerflow.files.snapshots._RACY_NS", -(10**9))
    store.keep("r1", LIMITS)
    kept = list(store.objects.iterdir())
    assert len(kept) == 1
    kept[0].unlink()

    store.keep("r2", LIMITS)

    assert list(store.objects.iterdir()) == []  # nothing was read: the first snapshot knows it


def test_too_much_is_not_kept_and_says_so(store: SnapshotStore) -> None:
    (store.folders.workspace / "big").write_bytes(b"x" * 2000)

    large = store.keep("r1", SnapshotLimits(max_bytes=1999))
    (store.folders.workspace / "small").write_text("x")
    many = store.keep("r2", SnapshotLimits(max_bytes=10**6, max_files=1))

    assert "2000 bytes, more than runs.snapshot_max_bytes (1999)" in (large.problem or "")
    assert "more than 1 files" in (many.problem or "")
    assert list(store.objects.iterdir()) == []


def test_the_first_snapshot_of_a_run_counts(store: SnapshotStore) -> None:
    store.keep("r1", LIMITS)
    (store.folders.workspace / "later").write_text("x")

    assert store.keep("r1", LIMITS).entries == []


def test_old_snapshots_go_with_what_only_they_held(store: SnapshotStore) -> None:
    for number in range(6):
        (store.folders.workspace / "file").write_text(f"version {number}")
        store.keep(f"r{number}", LIMITS)
        (store.folders.workspace / "file").write_text(f"end of {number}")
        keep_end(store, f"r{number}")

    assert (store.find("r0"), store.find_end("r0")) == (None, None)
    assert store.find("r5") is not None
    assert len(list(store.objects.iterdir())) <= 8
    assert [change.status for change in changes_of(store, "r5", []).files] == ["modified"]


def test_a_clock_that_was_set_back_does_not_make_the_newest_snapshot_the_oldest(store: SnapshotStore) -> None:
    for number in range(4):
        store.keep(f"r{number}", LIMITS)
    for path in (store.folders.root / "snapshots").glob("*.manifest"):
        os.utime(path, (4_000_000_000, 4_000_000_000))

    store.keep("r4", LIMITS)

    assert store.find("r4") is not None
    assert len(store.run_ids()) == 2


def test_a_snapshot_that_is_made_for_a_copy_drops_none_of_the_others(store: SnapshotStore) -> None:
    for number in range(50):
        store.keep(f"r{number}", SnapshotLimits(max_bytes=1000, kept=100))

    store.keep("copy", SnapshotLimits(max_bytes=1000))

    assert len(store.run_ids()) == 51


def test_damaged_contents_and_records_are_reported_not_written(store: SnapshotStore) -> None:
    (store.folders.workspace / "file").write_text("good")
    store.keep("r1", LIMITS)
    for path in store.objects.iterdir():
        path.write_text("evil")
    (store.folders.workspace / "file").unlink()

    snapshot = store.find("r1")
    assert snapshot is not None
    failed = restore(store, snapshot)
    (store.folders.root / "snapshots/r1.manifest").write_bytes(b"\x00broken")

    assert failed == ["workspace/file"]
    assert not (store.folders.workspace / "file").exists()
    damaged = store.find("r1")
    assert damaged is not None
    assert damaged.problem == "the record of the files is damaged"


async def test_more_files_than_anybody_looks_at_stay_and_the_answer_says_so(
    store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.keep("r1", LIMITS)
    monkeypatch.setitem(scan.__kwdefaults__, "most", 3)
    for number in range(4):
        (store.folders.workspace / f"{number}").write_text("x")

    problem = await roll_back_files(store, "r1")

    assert problem is not None
    assert "the files stay as they are: the thread has more than 3 files" in problem
    assert changes_of(store, "r1", []).is_known is False
    assert len(list(store.folders.workspace.iterdir())) == 4


async def test_a_record_that_cannot_be_opened_keeps_no_run_from_its_end(store: SnapshotStore) -> None:
    store.keep("r1", LIMITS)
    record = store.folders.root / "snapshots/r1.manifest"
    record.unlink()
    record.mkdir()

    problem = await roll_back_files(store, "r1")

    assert problem == "The conversation was restored, but not the files: Is a directory."


def test_files_are_copied_to_another_thread(store: SnapshotStore, tmp_path: Path) -> None:
    fill(store)
    other = SnapshotStore(ThreadFolders("t2", tmp_path / "t2"))

    failed = copy_files(store, store.keep("copy", LIMITS), other)

    assert failed == []
    assert tree(other.folders.user_data) == tree(store.folders.user_data)
