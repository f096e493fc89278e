"""Sandboxes see the folders of skills that exist, of the thread's user."""

from pathlib import Path

import pytest
from support.project import Project

from deerflow.app.components import SkillFolderMounts
from deerflow.domain import DEFAULT_USER
from deerflow.errors import ConfigError
from deerflow.skills import SkillFolders, shipped_skills, skill_folders


def test_a_sandbox_sees_what_exists_of_its_users_folders(tmp_path: Path) -> None:
    project = Project(tmp_path)
    loaded = project.load("skills: {paths: [team], trusted_projects: [., linked]}\n")
    for folder in ("skills/public", "skills/custom", "team", ".agents/skills", "elsewhere/.agents/skills"):
        (project.root / folder).mkdir(parents=True)
    (project.root / "linked").mkdir()
    (project.root / "linked" / ".agents").symlink_to(project.root / "elsewhere" / ".agents")
    mounts = SkillFolderMounts(skill_folders(loaded, loaded.paths))

    seen = {
        user: [mount.virtual for mount in mounts(loaded.paths.thread(user, "t1"))]
        for user in (DEFAULT_USER, "ann@example.org")
    }
    own = loaded.paths.skills("ann@example.org")
    own.mkdir(parents=True)
    later = {mount.virtual: mount for mount in mounts(loaded.paths.thread("ann@example.org", "t1"))}

    project_path = f"/mnt/skills/projects/{project.root.name}/agents"
    shared = [project_path, "/mnt/skills/paths/team", "/mnt/skills/public"]
    assert seen == {
        DEFAULT_USER: [shared[0], "/mnt/skills/custom", *shared[1:]],
        "ann@example.org": shared,
    }
    assert later["/mnt/skills/custom"].host == own
    assert all(mount.read_only for mount in later.values())


def test_a_path_of_skills_that_would_hide_the_system_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"skills\.container_path: /usr/skills would hide"):
        SkillFolderMounts(SkillFolders(tmp_path, container_path="/usr/skills"))


def test_a_project_without_public_skills_has_the_shipped_ones(tmp_path: Path) -> None:
    project = Project(tmp_path)
    loaded, named = project.load("{}"), project.load("skills: {path: skills}\n")
    by_variable = project.load("{}", env={"DEER_FLOW_SKILLS_PATH": "skills"})

    assert skill_folders(loaded, loaded.paths).public() == shipped_skills()
    assert (shipped_skills() or tmp_path).joinpath("find-skills", "SKILL.md").is_file()
    own = project.root / "skills" / "public"
    for other in (named, by_variable):
        assert skill_folders(other, other.paths).public() == own
    own.mkdir(parents=True)
    assert skill_folders(loaded, loaded.paths).public() == own
