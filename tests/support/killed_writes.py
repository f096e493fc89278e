"""Kills a process at every file operation of a change of a skill, and checks what is left.

`python killed_writes.py FOLDER write|create|delete|install [no-exchange]` prints how many points were tried.
The child is forked here, where no thread runs, and killed with SIGKILL before its n-th file operation.
"""

import os
import shutil
import signal
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from deerflow.skills import InstallOptions, SkillInstaller, Skills, versions
from deerflow.skills.archive import pack
from deerflow.skills.versions import (
    CustomSkills,
    FileContent,
    SkillChange,
    package_digest_of,
    read_package,
    stored_files,
)

EVENTS = (
    "open",
    "os.rename",
    "os.mkdir",
    "os.remove",
    "os.rmdir",
    "os.chmod",
    "shutil.rmtree",
    "ctypes.dlsym",
)
OLD = {
    "SKILL.md": FileContent(b"---\nname: notes\ndescription: Old.\n---\nold\n"),
    "references/a.md": FileContent(b"old\n"),
}
NEW = {
    "SKILL.md": FileContent(b"---\nname: notes\ndescription: New.\n---\nnew\n"),
    "scripts/run.py": FileContent(b"print('new')\n", is_executable=True),
}


def die_at(point: int) -> None:
    """Kill this process before its n-th file operation."""
    seen = 0

    def count(event: str, args: tuple[object, ...]) -> None:
        nonlocal seen
        if event in EVENTS:
            seen += 1
            if seen == point:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def change(skills: CustomSkills, action: str) -> None:
    if action == "delete":
        skills.delete("notes", SkillChange("user"))
    elif action == "install":
        installer = SkillInstaller(Skills(skills.root.parent), skills)
        options = InstallOptions("archive", is_update=True, on_conflict="theirs")
        with (skills.root.parent / "new.skill").open("rb") as file:
            installer.apply(installer.plan_archive(file, options))
    else:
        skills.write("notes", NEW, SkillChange("user"))


def was_killed(skills: CustomSkills, action: str, point: int) -> bool:
    child = os.fork()
    if child == 0:
        die_at(point)
        change(skills, action)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
    return os.WIFSIGNALED(status)


def check(skills: CustomSkills, allowed: tuple[str, ...]) -> None:
    target = skills.root / "notes"
    left = package_digest_of(read_package(target)) if target.exists() else ""
    assert left in allowed, sorted(path.name for path in target.rglob("*"))


def main(folder: Path, action: str, *, has_exchange: bool) -> int:
    if not has_exchange:
        versions._swap = lambda a, b: False
    old, new = package_digest_of(OLD), "" if action == "delete" else package_digest_of(NEW)
    before = "" if action == "create" else old
    # An installation reads the archive first, and then writes as the others do: every third point is enough.
    for point in range(1, 1000, 3 if action == "install" else 1):
        shutil.rmtree(folder, ignore_errors=True)
        skills = CustomSkills(folder / "custom", history=folder / "history")
        if before:
            origin = {"files": {path: asdict(file) for path, file in stored_files(OLD).items()}}
            skills.write("notes", OLD, SkillChange("user", origin=origin))
        if action == "install":
            tempfile.tempdir = str(folder)
            versions.write_package(folder / "new", NEW)
            (folder / "new.skill").write_bytes(pack(folder / "new", top=None))
        killed = was_killed(skills, action, point)
        if has_exchange:
            check(skills, (before, new))
        history = skills.history("notes")  # completes or drops the change
        check(skills, (before, new))
        digest = (
            package_digest_of(read_package(skills.root / "notes")) if (skills.root / "notes").exists() else ""
        )
        assert (history[-1].digest if history else "") == digest
        skills.write("notes", NEW, SkillChange("user"))
        assert package_digest_of(skills.read("notes")) == package_digest_of(NEW)
        assert not list((folder / "custom").glob(".staging/*"))
        assert not list((folder / "history").rglob("*.pending"))
        if not killed:
            return point - 1
    raise AssertionError("the change never ended")


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), sys.argv[2], has_exchange="no-exchange" not in sys.argv))
