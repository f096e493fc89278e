"""Uploads are stored whole or not at all, under the name they came with, and nowhere else."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from deerflow.config import UploadSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import InvalidInputError, NotFoundError, PathRefusedError, TooLargeError
from deerflow.files.uploads import checked_name, delete_upload, list_uploads, save_upload

LIMITS = UploadSettings(max_file_size=100)


@pytest.fixture
def folders(tmp_path: Path) -> ThreadFolders:
    return ThreadFolders("t1", tmp_path / "t1")


async def pieces(*parts: bytes, fails: Exception | None = None) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
    if fails is not None:
        raise fails


@pytest.mark.parametrize(
    "name",
    [
        "notes.md",
        "no extension",
        ".hidden",
        "报告.pdf",
        "😀.txt",
        "a'b\"c.txt",
        "<script>alert(1)</script>.txt".replace("/", ""),
        "a" * 255,
        "CON",
        "x.",
    ],
)
async def test_a_file_is_kept_under_its_own_name(folders: ThreadFolders, name: str) -> None:
    saved = await save_upload(folders, name, pieces(b"one ", b"two"), LIMITS)

    assert (folders.uploads / name).read_bytes() == b"one two"
    shown = saved.to_dict()
    assert (shown["filename"], shown["size"], shown["path"]) == (name, 7, f"/mnt/user-data/uploads/{name}")
    assert unquote(shown["artifact_url"]) == f"/api/threads/t1/artifacts/mnt/user-data/uploads/{name}"
    assert [upload.filename for upload in list_uploads(folders)] == [name]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "  ",
        ".",
        "..",
        "a/b",
        "../x",
        "/etc/passwd",
        "a\\b",
        "C:\\x",
        "a\x00b",
        "a\nb",
        "\x1b[31m",
        "a" * 256,
        "字" * 86,
        "\ud800",
        ".staging-1",
    ],
)
async def test_a_name_that_is_none_is_refused(folders: ThreadFolders, name: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot be used"):
        await save_upload(folders, name, pieces(b"x"), LIMITS)
    with pytest.raises(InvalidInputError):
        delete_upload(folders, name)
    assert not folders.root.exists()


async def test_a_name_that_is_taken_gets_a_number(folders: ThreadFolders) -> None:
    saved = [await save_upload(folders, "a.tar.gz", pieces(b"%d" % number), LIMITS) for number in range(3)]

    assert [upload.filename for upload in saved] == ["a.tar.gz", "a.tar_1.gz", "a.tar_2.gz"]
    assert (folders.uploads / "a.tar.gz").read_bytes() == b"0"


@pytest.mark.parametrize("name", ["x" * 255, "字" * 85, "a." + "y" * 253, "字" * 83 + ".md"])
async def test_the_longest_names_get_numbers_too(folders: ThreadFolders, name: str) -> None:
    await save_upload(folders, name, pieces(b"1"), LIMITS)

    second = await save_upload(folders, name, pieces(b"2"), LIMITS)

    assert "_1" in second.filename
    assert len(second.filename.encode()) <= 255
    assert checked_name(second.filename) == second.filename


@pytest.mark.parametrize("fails", [TimeoutError(), ConnectionResetError()])
async def test_an_upload_that_breaks_off_leaves_nothing(folders: ThreadFolders, fails: Exception) -> None:
    with pytest.raises(type(fails)):
        await save_upload(folders, "a.txt", pieces(b"half", fails=fails), LIMITS)

    assert list(folders.uploads.iterdir()) == []


async def test_a_file_that_grows_too_large_leaves_nothing(folders: ThreadFolders) -> None:
    with pytest.raises(TooLargeError, match="max_file_size"):
        await save_upload(folders, "a.txt", pieces(b"x" * 100, b"x"), LIMITS)

    assert list(folders.uploads.iterdir()) == []
    assert (await save_upload(folders, "a.txt", pieces(b"x" * 100), LIMITS)).size == 100


async def test_an_empty_file_is_a_file(folders: ThreadFolders) -> None:
    assert (await save_upload(folders, "empty", pieces(), LIMITS)).size == 0


async def test_a_link_among_the_uploads_is_neither_listed_nor_written_through(
    folders: ThreadFolders, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("mine")
    folders.create()
    (folders.uploads / "a.txt").symlink_to(secret)
    (folders.uploads / "folder").mkdir()
    os.mkfifo(folders.uploads / "pipe")

    saved = await save_upload(folders, "a.txt", pieces(b"new"), LIMITS)
    delete_upload(folders, "a.txt")

    assert saved.filename == "a_1.txt"
    assert [upload.filename for upload in list_uploads(folders)] == ["a_1.txt"]
    assert secret.read_text() == "mine"


@pytest.mark.parametrize("is_dangling", [False, True])
async def test_an_uploads_folder_that_became_a_link_is_refused(
    folders: ThreadFolders, tmp_path: Path, is_dangling: bool
) -> None:
    outside = tmp_path / "outside"
    if not is_dangling:
        outside.mkdir()
        (outside / "theirs.txt").write_text("theirs")
    folders.user_data.mkdir(parents=True)
    folders.uploads.symlink_to(outside)

    with pytest.raises(PathRefusedError):
        await save_upload(folders, "a.txt", pieces(b"x"), LIMITS)
    with pytest.raises(PathRefusedError):
        list_uploads(folders)
    with pytest.raises(PathRefusedError):
        delete_upload(folders, "theirs.txt")
    assert not (outside / "a.txt").exists()


def test_names_that_are_no_text_are_listed_without_failing(folders: ThreadFolders) -> None:
    folders.create()
    (Path(os.fsdecode(bytes(folders.uploads) + b"/bad\xff.txt"))).write_text("x")

    (found,) = list_uploads(folders)

    assert found.to_dict()["artifact_url"].endswith("bad%FF.txt")


async def test_what_is_not_there_cannot_be_deleted(folders: ThreadFolders) -> None:
    folders.create()
    (folders.uploads / "folder").mkdir()

    for name in ("missing.txt", "folder"):
        with pytest.raises(NotFoundError):
            delete_upload(folders, name)
