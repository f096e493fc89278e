"""A skill's archive is unpacked whole and in its own folder, or not at all."""

import stat
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import pytest

from deerflow.errors import ConflictError, DeerFlowError, InvalidInputError, NotFoundError, TooLargeError
from deerflow.skills import archive as limits
from deerflow.skills import install_skill, read_member

MATTER = "---\nname: tidy-notes\ndescription: Keeps notes tidy.\n---\n# Tidy\n"
GOOD = {"tidy/SKILL.md": MATTER, "tidy/scripts/run.sh": "#!/bin/sh\n"}

Pack = Callable[[Mapping[str, str | bytes]], BinaryIO]


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    def packed(files: Mapping[str, str | bytes]) -> BinaryIO:
        path = tmp_path / "x.skill"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return path.open("rb")

    return packed


def member(name: str, *, mode: int = 0o100644, method: int = zipfile.ZIP_DEFLATED) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr, info.compress_type = mode << 16, method
    return info


def written(tmp_path: Path, *members: tuple[zipfile.ZipInfo, str | bytes]) -> BinaryIO:
    path = tmp_path / "x.skill"
    with zipfile.ZipFile(path, "w") as archive:
        for info, content in members:
            archive.writestr(info, content)
    return path.open("rb")


def assert_refused(file: BinaryIO, root: Path, error: type[DeerFlowError], match: str) -> None:
    outside = sorted(root.parent.rglob("*"))
    with file, pytest.raises(error, match=match):
        install_skill(file, root)
    left = [path for path in root.parent.rglob("*") if path not in outside and path != root]
    assert left in ([], [root / "custom"])


@pytest.mark.parametrize("folder", ["", "tidy/", "another name/"])
def test_a_skill_is_installed_under_its_own_name(folder: str, pack: Pack, tmp_path: Path) -> None:
    files = {f"{folder}SKILL.md": MATTER, f"{folder}references/deep/a.md": "a", "__MACOSX/._x": "litter"}

    with pack(files) as file:
        skill = install_skill(file, tmp_path / "skills")

    home = tmp_path / "skills" / "custom" / "tidy-notes"
    assert (skill.name, skill.category, skill.file) == ("tidy-notes", "custom", home / "SKILL.md")
    assert (home / "references/deep/a.md").read_text() == "a"
    assert [path.name for path in (tmp_path / "skills" / "custom").iterdir()] == ["tidy-notes"]


def test_scripts_stay_executable_and_nothing_more(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        (member("SKILL.md"), MATTER),
        (member("run.sh", mode=stat.S_IFREG | stat.S_ISUID | 0o777), "#!/bin/sh\n"),
    )

    with file:
        home = install_skill(file, tmp_path / "skills").file.parent

    assert [stat.S_IMODE((home / name).stat().st_mode) for name in ("SKILL.md", "run.sh")] == [0o644, 0o755]


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "tidy/../../evil",
        "/etc/evil",
        "tidy\\..\\..\\evil",
        "C:/evil",
        "tidy/a\nb",
        "a/" * 20 + "b",
    ],
)
def test_a_name_that_leads_out_is_refused(name: str, pack: Pack, tmp_path: Path) -> None:
    assert_refused(pack({**GOOD, name: "x"}), tmp_path / "skills", InvalidInputError, "no path inside")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_links_and_devices_are_refused(kind: int, tmp_path: Path) -> None:
    file = written(tmp_path, (member("SKILL.md"), MATTER), (member("link", mode=kind | 0o777), "/etc/passwd"))

    assert_refused(file, tmp_path / "skills", InvalidInputError, "link or device")


def test_unusual_packing_and_encryption_are_refused(tmp_path: Path) -> None:
    skill = (member("SKILL.md"), MATTER)
    lzma = written(tmp_path, skill, (member("a", method=zipfile.ZIP_LZMA), "x"))
    assert_refused(lzma, tmp_path / "skills", InvalidInputError, "deflate")

    with written(tmp_path, skill) as file:
        data = bytearray(file.read())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "x.skill").write_bytes(data)
    assert_refused((tmp_path / "x.skill").open("rb"), tmp_path / "skills", InvalidInputError, "encrypted")


def test_a_member_that_comes_twice_or_is_file_and_folder_is_refused(tmp_path: Path) -> None:
    skill = (member("SKILL.md"), MATTER)
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = written(tmp_path, skill, skill)
    assert_refused(twice, tmp_path / "skills", InvalidInputError, "twice")

    both = written(tmp_path, skill, (member("a"), "x"), (member("a/b"), "x"))
    assert_refused(both, tmp_path / "skills", InvalidInputError, "unpacked")


def test_sizes_are_counted_not_believed(pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_MEMBER_BYTES", 100_000)
    monkeypatch.setattr(limits, "MAX_TOTAL_BYTES", 150_000)
    monkeypatch.setattr(limits, "MAX_MEMBERS", 4)
    root = tmp_path / "skills"

    assert_refused(pack({**GOOD, "tidy/bomb": b"0" * 200_000}), root, TooLargeError, "bomb")
    halves = {f"tidy/{n}": b"0" * 90_000 for n in range(2)}
    assert_refused(pack({**GOOD, **halves}), root, TooLargeError, "unpacks to more")
    many = {f"tidy/{n}": "x" for n in range(5)}
    assert_refused(pack({**GOOD, **many}), root, TooLargeError, "members")
    monkeypatch.setattr(limits, "MAX_ARCHIVE_BYTES", 10)
    assert_refused(pack(GOOD), root, TooLargeError, "archive has more")


def test_a_huge_index_is_not_read(pack: Pack, tmp_path: Path) -> None:
    files = {f"tidy/{n:0400}": b"" for n in range(2_500)}

    assert_refused(pack({**GOOD, **files}), tmp_path / "skills", InvalidInputError, "index")


@pytest.mark.parametrize(
    ("files", "match"),
    [
        ({"a/x": "1", "b/SKILL.md": MATTER}, "no SKILL.md"),
        ({"a/b/SKILL.md": MATTER}, "no SKILL.md"),
        ({}, "no SKILL.md"),
        ({"SKILL.md": "no front matter"}, "front matter"),
        ({"SKILL.md": "---\nname: ../evil\ndescription: x\n---\n"}, "name"),
        ({"SKILL.md": b"\xff\xfe"}, "cannot be used"),
    ],
)
def test_an_archive_without_a_usable_skill_is_refused(
    files: Mapping[str, str | bytes], match: str, pack: Pack, tmp_path: Path
) -> None:
    assert_refused(pack(files), tmp_path / "skills", InvalidInputError, match)


@pytest.mark.parametrize("data", [b"", b"PK", b"PK\x05\x06" + b"\xff" * 18, b"x" * 5000])
def test_what_is_no_archive_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.skill").write_bytes(data)

    assert_refused((tmp_path / "x.skill").open("rb"), tmp_path / "skills", InvalidInputError, "ZIP")


@pytest.mark.parametrize("place", ["custom/tidy-notes", "custom/elsewhere", "public/tidy-notes"])
def test_a_known_name_is_a_conflict(place: str, pack: Pack, tmp_path: Path) -> None:
    known = tmp_path / "skills" / place / "SKILL.md"
    known.parent.mkdir(parents=True)
    known.write_text(MATTER)

    with pack(GOOD) as file, pytest.raises(ConflictError, match="already"):
        install_skill(file, tmp_path / "skills")

    assert known.read_text() == MATTER


def test_a_folder_in_the_way_is_a_conflict(pack: Pack, tmp_path: Path) -> None:
    (tmp_path / "skills" / "custom" / "tidy-notes").mkdir(parents=True)

    with pack(GOOD) as file, pytest.raises(ConflictError, match="folder"):
        install_skill(file, tmp_path / "skills")


def test_a_member_is_read_by_its_path_in_the_skill(pack: Pack) -> None:
    with pack(GOOD) as file:
        for name in ("SKILL.md", "tidy/SKILL.md"):
            assert read_member(file, name) == MATTER.encode()
        for name in ("missing", "../SKILL.md", "/SKILL.md", "", "tidy", "scripts/"):
            with pytest.raises(NotFoundError):
                read_member(file, name)
