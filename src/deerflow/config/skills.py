"""Settings of skills: where they are, how they are found, checked and written."""

from typing import Any, Literal

from pydantic import Field, model_validator

from deerflow.config.secrets import without_login
from deerflow.config.section import Section


class CatalogueSettings(Section):
    """A place to search skills in and to install them from; a text instead is its `location`."""

    location: str = Field(
        min_length=1,
        description="A folder, relative ones start in the project; a git URL, which ends in `.git` or begins "
        "with `git+` (https, http or file); or the URL of a site that has "
        "`/.well-known/agent-skills/index.json`.",
    )
    ref: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./+-]{0,200}$",
        description="Branch or tag of a git URL. Absent: the default branch.",
    )
    hosts: tuple[str, ...] = Field(
        (),
        description="Other hosts, such as `cdn.example.org`, at which the archives of an index may be. "
        "Absent: only the index's own host.",
    )

    @property
    def kind(self) -> Literal["folder", "git", "index"]:
        """How the location is read."""
        location = self.location.lower()
        if location.startswith(("git+", "file://")) or (location.endswith(".git") and "://" in location):
            return "git"
        return "index" if location.startswith(("http://", "https://")) else "folder"

    @model_validator(mode="before")
    @classmethod
    def _text_is_the_location(cls, data: Any) -> Any:
        return {"location": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _is_known_kind(self) -> "CatalogueSettings":
        address = self.location.lower().removeprefix("git+")
        if "://" in address and not address.startswith(("https://", "http://", "file://")):
            shown = without_login(self.location)[:80]
            raise ValueError(f"{shown!r} has to begin with https://, http:// or file://, or be a folder")
        if self.ref is not None and self.kind != "git":
            raise ValueError("`ref` is for git URLs; end the location in .git, or begin it with git+")
        return self


class SkillsSettings(Section):
    """Skills: instructions and files that agents load on demand."""

    use: str | None = Field(
        None, description="Class that finds skills, as `module:Class`. Absent: skills are read from folders."
    )
    path: str | None = Field(
        None,
        description="Folder with `public/` and `custom/`. Absent: `skills/` in the project, with the shipped "
        "skills as `public/` if it has none.",
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
        description="Path of the skills in the sandbox, read-only, and in prompts.",
    )
    deferred_discovery: bool = Field(
        False,
        description="List only the names of skills in the prompt; the agent finds what it needs with the "
        "tool `find_skill`. More than 50 skills are always listed so.",
    )
    catalogues: tuple[CatalogueSettings, ...] = Field(
        (),
        description="Where skills can be searched and installed from: folders, git URLs, and sites with an "
        "index of their skills. Nothing else is fetched. Addresses that are not public need "
        "`runs.webhook_allow_cidrs`.",
    )


class SkillScanSettings(Section):
    """Checks of custom skills before they are written: installed, edited or written by agents."""

    enabled: bool = Field(
        True,
        description="Scan the files of a custom skill before it is written, without running them: secrets, "
        "hidden text, injected instructions, harmful commands, obfuscation, links and programs. A finding of "
        "the level `block` refuses it. If off, nothing is scanned.",
    )


class SkillEvolutionSettings(Section):
    """Skills written and improved by agents."""

    enabled: bool = Field(
        False,
        description="Give agents the tool `skill_manage`, which writes the user's custom skills. A person "
        "approves new skills; a change is a draft until the skill's own cases or a person decide.",
    )
    moderation_model_name: str | None = Field(
        None,
        description="Model of `models:` that reviews changes of custom skills, also those made over HTTP. "
        "Absent: the run's model reviews what agents write, if it can reason.",
    )
    security_fail_closed: bool = Field(
        True,
        description="Refuse a change whose review failed; otherwise it is written with a warning. An answer "
        "of the model that is not the requested JSON always refuses it.",
    )
