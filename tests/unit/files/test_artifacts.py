"""Artifacts are opened below the thread's folder and nowhere else, and tell what a browser would run."""

import hashlib
import os
from contextlib import closing
from pathlib import Path

import pytest

from deerflow.domain import ThreadFolders
from deerflow.errors import DeerFlowError, NotFoundError, PathRefusedError, TooLargeError
from deerflow.files import artifacts
from deerflow.files.artifacts import open_artifact

OUTPUTS = "/mnt/user-data/outputs"


@pytest.fixture
def folders(tmp_path: Path) -> ThreadFolders:
    folders = ThreadFolders("t1", tmp_path / "t1")
    folders.create()
    return folders


def content(folders: ThreadFolders, path: str) -> bytes:
    with closing(open_artifact(folders, path)) as found:
        return b"".join(found.read(0, found.size))


@pytest.mark.parametrize(
    "name", ["a.md", "深/层/报告.md", "new\nline.txt", "'quotes\".txt", "back\\slash", "😀", "a..b"]
)
def test_a_file_is_found_with_and_without_the_leading_slash(folders: ThreadFolders, name: str) -> None:
    (folders.outputs / name).parent.mkdir(parents=True, exist_ok=True)
    (folders.outputs / name).write_bytes(b"hello")

    assert content(folders, f"{OUTPUTS}/{name}") == b"hello"
    assert content(folders, f"{OUTPUTS}/{name}".lstrip("/")) == b"hello"


@pytest.mark.parametrize(
    "path",
    [
        "/mnt/user-data/../../etc/passwd",
        "/mnt/user-data/outputs/../../../x",
        "../../etc/passwd",
        "/etc/passwd",
        "/mnt/skills/public/x",
        "/mnt/user-data",
        "/mnt/user-data-other/x",
        "",
        "/",
        "/mnt/user-data/outputs/a\x00.md",
        f"{OUTPUTS}/{'x' * 300}",
        f"{OUTPUTS}/{'x/' * 3000}y",
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(folders: ThreadFolders, path: str) -> None:
    with pytest.raises(PathRefusedError) as refused:
        open_artifact(folders, path)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    "path", [f"{OUTPUTS}/missing", f"{OUTPUTS}/folder", f"{OUTPUTS}/file/below", f"{OUTPUTS}/pipe", OUTPUTS]
)
def test_what_is_no_file_is_not_there(folders: ThreadFolders, path: str) -> None:
    (folders.outputs / "folder").mkdir()
    (folders.outputs / "file").write_text("x")
    os.mkfifo(folders.outputs / "pipe")

    with pytest.raises(NotFoundError):
        open_artifact(folders, path)


def test_nothing_is_there_before_the_thread_has_folders(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        open_artifact(ThreadFolders("t1", tmp_path / "none"), f"{OUTPUTS}/a")


@pytest.mark.parametrize(
    "target",
    [
        "/etc/passwd",
        "/proc/self/environ",
        "/proc/self/root/etc/passwd",
        "/dev/zero",
        "../../../../secret",
        "/dev/stdin",
    ],
)
def test_a_link_that_leads_out_is_refused(folders: ThreadFolders, tmp_path: Path, target: str) -> None:
    (tmp_path / "secret").write_text("mine")
    (folders.outputs / "link").symlink_to(target)
    (folders.outputs / "folder").symlink_to(Path(target).parent)

    for path in (f"{OUTPUTS}/link", f"{OUTPUTS}/folder/{Path(target).name}"):
        with pytest.raises(DeerFlowError):
            open_artifact(folders, path)


def test_a_link_inside_the_folder_and_a_second_name(folders: ThreadFolders, tmp_path: Path) -> None:
    (folders.workspace / "a.txt").write_text("inside")
    (folders.outputs / "link").symlink_to("../workspace/a.txt")
    (tmp_path / "outside").write_text("outside")
    os.link(tmp_path / "outside", folders.outputs / "hard")

    assert content(folders, f"{OUTPUTS}/link") == b"inside"
    with pytest.raises(PathRefusedError, match="hard link"):
        open_artifact(folders, f"{OUTPUTS}/hard")


@pytest.mark.parametrize(
    ("name", "is_active"),
    [
        ("a.html", True),
        ("a.HTM", True),
        ("a.svg", True),
        ("a.svgz", True),
        ("a.xhtml", True),
        ("a.xml", True),
        ("a.xsl", True),
        ("a.rdf", True),
        ("a.md", False),
        ("a.png", False),
        ("a.js", False),
        ("a.pdf", False),
        ("a", False),
    ],
)
def test_what_a_browser_would_run_is_marked(folders: ThreadFolders, name: str, is_active: bool) -> None:
    (folders.outputs / name).write_text("x")

    with closing(open_artifact(folders, f"{OUTPUTS}/{name}")) as found:
        assert found.is_active is is_active, found.media_type


def test_the_tag_is_the_hash_and_of_huge_files_a_quick_one(folders: ThreadFolders) -> None:
    (folders.outputs / "a").write_bytes(b"hello" * 1000)
    with (folders.outputs / "huge").open("wb") as file:
        file.truncate(1 << 40)

    with closing(open_artifact(folders, f"{OUTPUTS}/a")) as found:
        assert found.tag() == f'"{hashlib.sha256(b"hello" * 1000).hexdigest()}"'
    with closing(open_artifact(folders, f"{OUTPUTS}/huge")) as found:
        assert found.tag().startswith('W/"10000000000-')
        assert b"".join(found.read((1 << 40) - 3, 1 << 40)) == b"\0\0\0"


def test_refused_files_are_closed_again(folders: ThreadFolders) -> None:
    (folders.outputs / "folder").mkdir()
    before = len(list(Path("/proc/self/fd").iterdir()))

    for _ in range(50):
        with pytest.raises(DeerFlowError):
            open_artifact(folders, f"{OUTPUTS}/folder")

    assert len(list(Path("/proc/self/fd").iterdir())) < before + 25


@pytest.fixture
def outputs(tmp_path: Path) -> ThreadFolders:
    made = ThreadFolders("t1", tmp_path / "t1")
    made.create()
    for name in ("b/2", "b/1", "b!", "a", "b/c/d", "c"):
        path = made.outputs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return made


def test_outputs_are_listed_in_order_of_their_paths(outputs: ThreadFolders) -> None:
    listed = [found.parts for found in artifacts.list_outputs(outputs)]

    assert listed == sorted(listed)
    assert len(listed) == 6


def test_a_list_ends_where_it_is_long_enough(outputs: ThreadFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = artifacts.list_outputs(outputs)
    monkeypatch.setattr(artifacts, "MAX_FILES", 3)

    assert artifacts.list_outputs(outputs) == whole[:3]
    with pytest.raises(TooLargeError, match="3 files"):
        artifacts.check_zip_size(outputs)


def test_outputs_that_are_too_large_for_a_zip_are_refused(outputs: ThreadFolders) -> None:
    artifacts.check_zip_size(outputs)
    os.truncate(outputs.outputs / "a", artifacts.MAX_BYTES)  # a hole: it takes no room

    with pytest.raises(TooLargeError, match="4 GiB"):
        artifacts.check_zip_size(outputs)
