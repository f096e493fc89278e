"""Which files a fork gets, and what a run did to them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deerflow.config import RunSettings
from deerflow.domain import RunRecord, RunRequest, RunStatus, ThreadFolders
from deerflow.files import changes
from deerflow.files.changes import changes_of
from deerflow.files.file_history import (
    REGENERATED_RUN,
    HistoryPoint,
    files_after,
    files_before,
    later_runs,
    restore_before_turn,
    runs_from,
)
from deerflow.files.snapshots import SnapshotLimits, SnapshotStore

KEPT = 2
LIMITS = SnapshotLimits(max_bytes=1_000_000, kept=KEPT)
START = datetime(2026, 11, 16, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    folders = ThreadFolders("t1", tmp_path / "t1")
    folders.create()
    return SnapshotStore(folders)


def change_files(store: SnapshotStore, run_id: str) -> None:
    """Do what a run does that writes a file: keep what is there, then change it."""
    store.keep(run_id, LIMITS)
    (store.folders.workspace / "note.txt").write_text(run_id)


def message(run_id: str | None, minutes: int = 0) -> HistoryPoint:
    return HistoryPoint(run_id, START + timedelta(minutes=minutes))


def run(run_id: str, minutes: int, *, again: str | None = None) -> RunRecord:
    at = START + timedelta(minutes=minutes)
    request = RunRequest(thread_id="t1")
    if again is not None:
        request = RunRequest(thread_id="t1", checkpoint_id="c", metadata={REGENERATED_RUN: again})
    return RunRecord(run_id, request, RunStatus.SUCCESS, at, at)


def test_later_runs_are_told_by_the_run_or_by_time_for_what_people_wrote() -> None:
    runs = [run(f"r{number}", number) for number in (3, 2, 1)]

    assert later_runs(runs, message("r1", minutes=9)) == ["r2", "r3"]
    assert later_runs(runs, message("r3")) == []
    assert later_runs(runs, message(None, minutes=2)) == ["r3"]
    assert later_runs(runs, message("of another thread", minutes=0)) == ["r1", "r2", "r3"]


def test_files_of_then_come_from_the_next_run_that_changed_some(store: SnapshotStore) -> None:
    change_files(store, "r1")
    change_files(store, "r3")

    exact = files_after(store, ["r2", "r3"], kept=10)
    unchanged = files_after(store, ["r4"], kept=10)

    assert exact.snapshot == store.find("r3")
    assert exact.is_exact
    assert (unchanged.snapshot, unchanged.is_exact) == (None, True)


def test_a_turn_that_was_taken_again_began_with_the_files_of_the_first_time(store: SnapshotStore) -> None:
    change_files(store, "r1")
    change_files(store, "r2")
    change_files(store, "r3")
    runs = [run("r4", 4, again="r3"), run("r3", 3, again="r2"), run("r2", 2), run("r1", 1)]

    past = files_before(store, runs, "r4", kept=10)
    lost = files_before(store, runs, "r0", kept=10)

    assert runs_from(runs, "r4") == ["r2", "r3", "r4"]
    assert (past.snapshot, past.is_exact) == (store.find("r2"), True)
    assert (lost.snapshot, lost.is_exact) == (None, False)


@pytest.mark.parametrize(("runs", "note"), [(3, "r0"), (4, "r3")])
def test_files_are_turned_back_only_while_all_of_them_are_kept(
    store: SnapshotStore, runs: int, note: str
) -> None:
    settings = RunSettings(snapshots_kept=KEPT)
    (store.folders.workspace / "note.txt").write_text("r0")
    for number in range(1, runs + 1):
        store.keep(f"r{number}", LIMITS)
        (store.folders.workspace / "note.txt").write_text(f"r{number}" if number < runs else "r3")
    done = [run(f"r{number}", number) for number in range(runs, 0, -1)]

    problem = restore_before_turn(store, done, "r1", "r9", settings)  # with five, all but two go

    assert (store.folders.workspace / "note.txt").read_text() == note
    assert (problem is None) == (runs == 3)
    assert store.find("r9") is not None


def test_runs_that_name_each_other_lead_nowhere_but_to_an_end() -> None:
    runs = [run("r2", 2, again="r1"), run("r1", 1, again="r2")]

    assert runs_from(runs, "r1") in (["r1", "r2"], ["r2"])


def test_files_that_are_no_longer_kept_are_not_guessed(store: SnapshotStore) -> None:
    for number in range(1, 6):  # the fifth drops all but the newest two
        change_files(store, f"r{number}")

    gone = files_after(store, ["r2", "r3", "r4", "r5"], kept=KEPT)
    known = files_after(store, ["r4", "r5"], kept=KEPT)

    assert store.run_ids() == ["r5", "r4"]
    assert (gone.snapshot, gone.is_exact) == (None, False)
    assert known.snapshot == store.find("r4")


def test_files_that_were_too_large_to_keep_are_said_to_be_unknown(store: SnapshotStore) -> None:
    (store.folders.workspace / "big").write_bytes(b"x" * 100)
    store.keep("r2", SnapshotLimits(max_bytes=10))

    past = files_after(store, ["r2"], kept=KEPT)

    assert (past.snapshot, past.is_exact) == (None, False)
    assert changes_of(store, "r2", []).is_known is False


def test_changes_are_measured_up_to_the_next_snapshot(store: SnapshotStore) -> None:
    (store.folders.workspace / "old.txt").write_text("a\nb\n")
    store.keep("r1", LIMITS)
    (store.folders.workspace / "old.txt").write_text("a\nc\n")
    (store.folders.outputs / "new.txt").write_text("no newline")
    store.keep("r2", LIMITS)
    (store.folders.workspace / "old.txt").unlink()

    first = changes_of(store, "r1", ["r2"]).out(with_files=True, with_diff=True)
    second = changes_of(store, "r2", []).out(with_files=True, with_diff=True)

    assert [(file["path"], file["status"]) for file in first["files"]] == [
        ("/mnt/user-data/outputs/new.txt", "created"),
        ("/mnt/user-data/workspace/old.txt", "modified"),
    ]
    assert "\\ No newline at end of file" in first["files"][0]["diff"]
    assert (first["summary"]["additions"], first["summary"]["deletions"]) == (2, 1)
    assert [(file["status"], file["deletions"]) for file in second["files"]] == [("deleted", 2)]


def test_what_people_do_after_a_run_is_not_its_own(store: SnapshotStore) -> None:
    work = store.folders.workspace
    for name in ("old.txt", "gone.txt", "kept.txt"):
        (work / name).write_text("a\n")
    store.keep("r1", LIMITS)
    (work / "old.txt").write_text("b\n")
    (work / "gone.txt").unlink()
    (work / "new.txt").write_text("n\n")
    changes.keep_end(store, "r1")
    shown = changes_of(store, "r1", []).out(with_files=True, with_diff=True)

    for name in ("old.txt", "kept.txt", "mine.txt"):
        (work / name).write_text("by hand\n")
    (work / "new.txt").unlink()
    store.keep("r2", LIMITS)

    assert changes_of(store, "r1", ["r2"]).out(with_files=True, with_diff=True) == shown
    assert [(file["path"].rpartition("/")[2], file["status"]) for file in shown["files"]] == [
        ("gone.txt", "deleted"),
        ("new.txt", "created"),
        ("old.txt", "modified"),
    ]
    assert "+b" in shown["files"][2]["diff"]


@pytest.mark.parametrize("is_noted", [False, True])
def test_a_file_whose_times_moved_is_not_changed(store: SnapshotStore, is_noted: bool) -> None:
    file = store.folders.workspace / "same.txt"
    file.write_text("same")
    large = store.folders.workspace / "large.bin"
    large.write_bytes(b"x" * (changes.MAX_FILE_BYTES + 1))
    store.keep("r1", LIMITS)
    file.write_text("same")
    large.write_bytes(b"x" * (changes.MAX_FILE_BYTES + 1))
    if is_noted:
        changes.keep_end(store, "r1")

    assert changes_of(store, "r1", []).files == []


def test_files_that_hold_keys_are_named_and_not_shown(store: SnapshotStore) -> None:
    store.keep("r1", LIMITS)
    for name in (".env", ".env.local", "server.pem", "id_ed25519"):
        (store.folders.workspace / name).write_text("SECRET")

    shown = changes_of(store, "r1", []).out(with_files=True, with_diff=True)

    assert [file["sensitive"] for file in shown["files"]] == [True] * 4
    assert "SECRET" not in str(shown)


def test_what_is_too_much_is_said_to_be_cut(store: SnapshotStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MAX_FILES", 3)
    monkeypatch.setattr(changes, "MAX_DIFF_CHARS", 50)
    store.keep("r1", LIMITS)
    work = store.folders.workspace
    (work / "a-long.txt").write_text("line\n" * 100)
    (work / "b-many.txt").write_text("\n" * 6000)
    (work / "c-large.bin").write_bytes(b"x" * (changes.MAX_FILE_BYTES + 1))
    (work / "d-more.txt").write_text("more")

    found = changes_of(store, "r1", [])
    shown = found.out(with_files=True, with_diff=True)

    assert [file["diff_unavailable_reason"] for file in shown["files"]] == [None, "large", "large"]
    assert shown["files"][0]["diff_truncated"] is True
    assert (len(shown["files"][0]["diff"]), found.left_out) == (50, 1)
    assert shown["summary"]["truncated"] is True


def test_odd_names_and_other_kinds_are_shown_safely(store: SnapshotStore) -> None:
    work = store.folders.workspace
    (work / "turns").write_text("a file")
    store.keep("r1", LIMITS)
    (work / "turns").unlink()
    (work / "turns").symlink_to("/etc/passwd")
    (work / "odd\udcff\n.txt").write_text("x")

    shown = changes_of(store, "r1", []).out(with_files=True, with_diff=True)

    assert [(file["status"], file["diff"] != "") for file in shown["files"]] == [
        ("created", True),
        ("modified", False),
    ]
    assert "root:" not in str(shown)
