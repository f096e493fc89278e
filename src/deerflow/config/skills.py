"""Settings of skills: where they are, how they are found, checked and written."""

from pydantic import Field

from deerflow.config.section import Section


class SkillsSettings(Section):
    """Skills: instructions and files that agents load on demand."""

    use: str | None = Field(
        None, description="Class that finds skills, as `module:Class`. Absent: skills are read from folders."
    )
    path: str | None = Field(
        None, description="Folder with `public/` and `custom/`. Absent: `skills/` in the project."
    )
    paths: tuple[str, ...] = Field(
        (),
        description="More folders of skills, read-only, for all users; relative ones start in the project. "
        "Of skills with the same name the earlier folder's is used; custom skills come before all of them, "
        "public skills after.",
    )
    trusted_projects: tuple[str, ...] = Field(
        (),
        description="Project folders whose `.agents/skills` and `.claude/skills` are read; `.` is the "
        "project of `config.yaml`. Their skills come before all others. A skill is instructions to the "
        "agent: list only projects whose every author you trust.",
    )
    container_path: str = Field(
        "/mnt/skills",
        pattern=r"^/",
        description="Path of the skills in the sandbox, read-only, and in prompts. Needs a restart.",
    )
    deferred_discovery: bool = Field(
        False, description="List skills in the prompt only after a search for them."
    )
    catalogues: tuple[str, ...] = Field(
        (),
        description="Where skills can be searched and installed from: folders, git URLs, and URLs of "
        "`.well-known/agent-skills/index.json`. Nothing else is fetched.",
    )


class SkillScanSettings(Section):
    """Checks of installed skills for dangerous contents."""

    enabled: bool = Field(True, description="Check skills.")


class SkillEvolutionSettings(Section):
    """Skills written by agents."""

    enabled: bool = Field(False, description="Allow agents to write skills.")
    moderation_model_name: str | None = Field(None, description="Model that reviews these skills.")
    security_fail_closed: bool = Field(True, description="Reject a skill when its review fails.")
