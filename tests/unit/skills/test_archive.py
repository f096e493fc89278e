"""A skill's archive is unpacked whole and in its own folder, or refused; packing it gives the same bytes."""

import stat
import zipfile
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import pytest
from support.skill_archives import ATTACKS, GOOD, MATTER, member, tar_member, tarred, zip_of, zipped

from deerflow.errors import DeerFlowError, InvalidInputError, NotFoundError, TooLargeError
from deerflow.skills import archive as limits
from deerflow.skills.archive import pack, read_member, unpack
from deerflow.skills.package_files import copy_package


def opened(folder: Path, data: bytes) -> BinaryIO:
    path = folder / "x.skill"
    path.write_bytes(data)
    return path.open("rb")


@pytest.mark.parametrize("top", ["", "tidy/", "another name/"])
def test_a_skill_is_unpacked_from_the_root_or_the_only_folder(top: str, tmp_path: Path) -> None:
    files = {f"{top}SKILL.md": MATTER, f"{top}references/deep/a.md": "a", "__MACOSX/._x": "litter"}

    with opened(tmp_path, zipped(files)) as file:
        unpack(file, tmp_path / "skill")

    found = sorted(
        path.relative_to(tmp_path / "skill").as_posix() for path in (tmp_path / "skill").rglob("*")
    )
    assert found == ["SKILL.md", "references", "references/deep", "references/deep/a.md"]
    assert (tmp_path / "skill/references/deep/a.md").read_text() == "a"


def test_a_gzipped_tar_is_unpacked_too(tmp_path: Path) -> None:
    data = tarred(
        (tar_member("./SKILL.md"), MATTER.encode()),
        (tar_member("./scripts/run.sh", mode=0o755), b"#!/bin/sh\n"),
    )

    with opened(tmp_path, data) as file:
        unpack(file, tmp_path / "skill")
        assert read_member(file, "SKILL.md") == MATTER.encode()

    assert (tmp_path / "skill/SKILL.md").read_text() == MATTER
    assert stat.S_IMODE((tmp_path / "skill/scripts/run.sh").stat().st_mode) == 0o755


def test_scripts_stay_executable_and_nothing_more(tmp_path: Path) -> None:
    data = zip_of(
        (member("SKILL.md"), MATTER),
        (member("run.sh", mode=stat.S_IFREG | stat.S_ISUID | 0o777), "#!/bin/sh\n"),
    )

    with opened(tmp_path, data) as file:
        unpack(file, tmp_path / "skill")

    modes = [stat.S_IMODE((tmp_path / "skill" / name).stat().st_mode) for name in ("SKILL.md", "run.sh")]
    assert modes == [0o644, 0o755]


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_and_nothing_is_written_outside(attack: str, tmp_path: Path) -> None:
    build, said = ATTACKS[attack]
    (tmp_path / "inner").mkdir()
    file = opened(tmp_path, build())

    with file, pytest.raises((InvalidInputError, TooLargeError), match=said):
        unpack(file, tmp_path / "inner" / "skill")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["inner", "x.skill"]
    assert [path.name for path in (tmp_path / "inner").iterdir()] in ([], ["skill"])
    assert not Path("/tmp/evil").exists()
    assert not any(path.is_symlink() for path in (tmp_path / "inner").rglob("*"))


def test_an_archive_over_the_limit_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_ARCHIVE_BYTES", 10)

    with opened(tmp_path, zipped(GOOD)) as file, pytest.raises(TooLargeError, match="archive has more"):
        unpack(file, tmp_path / "skill")


def test_a_member_is_read_by_its_path_in_the_skill(tmp_path: Path) -> None:
    with opened(tmp_path, zipped(GOOD)) as file:
        for name in ("SKILL.md", "tidy/SKILL.md"):
            assert read_member(file, name) == MATTER.encode()
        for name in ("missing", "../SKILL.md", "/SKILL.md", "", "tidy", "scripts/"):
            with pytest.raises(NotFoundError):
                read_member(file, name)


def test_a_skill_is_packed_to_the_same_bytes_and_unpacks_to_the_same_files(tmp_path: Path) -> None:
    for name, order in (("one", ["b.md", "a.md"]), ("two", ["a.md", "b.md"])):
        folder = tmp_path / name / "references"
        folder.mkdir(parents=True)
        (folder.parent / "SKILL.md").write_text(MATTER)
        for file in order:
            (folder / file).write_text(file)
        (folder / "报告.sh").write_text("#!/bin/sh\n")
        (folder / "报告.sh").chmod(0o700 if name == "one" else 0o755)
        (folder / "__pycache__").mkdir()

    one, two = (pack(tmp_path / name, top="tidy-notes") for name in ("one", "two"))
    with opened(tmp_path, one) as file:
        unpack(file, tmp_path / "again")

    assert one == two
    assert zipfile.ZipFile(BytesIO(one)).namelist() == [
        "tidy-notes/SKILL.md",
        "tidy-notes/references/a.md",
        "tidy-notes/references/b.md",
        "tidy-notes/references/报告.sh",
    ]
    assert pack(tmp_path / "again", top="tidy-notes") == one
    assert pack(tmp_path / "again", top=None) != one


def test_a_folder_with_a_link_or_a_pipe_is_neither_packed_nor_copied(tmp_path: Path) -> None:
    skill = tmp_path / "skill"
    skill.mkdir()
    (skill / "SKILL.md").write_text(MATTER)
    (skill / "evil").symlink_to("/etc/passwd")

    for work in (lambda: pack(skill, top=None), lambda: copy_package(skill, tmp_path / "copy")):
        with pytest.raises(DeerFlowError, match=r"'evil' .* is a link or device"):
            work()
    (skill / "evil").unlink()
    (skill / "evil").symlink_to("/etc", target_is_directory=True)
    with pytest.raises(InvalidInputError, match="link or device"):
        copy_package(skill, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
