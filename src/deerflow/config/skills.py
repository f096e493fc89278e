"""Settings of skills."""

from pydantic import Field

from deerflow.config.section import Section


class SkillsSettings(Section):
    """Where skills are found."""

    use: str | None = Field(None, description="A class of your own as `module:Class`; absent: folders.")
    path: str | None = Field(None, description="Folder with `public/` and `custom/`; absent: `skills/`.")
    container_path: str = Field(
        "/mnt/skills",
        pattern=r"^/",
        description="Folder in which sandboxes and agents see the skills, read-only. Needs a restart.",
    )
    deferred_discovery: bool = Field(False, description="Name skills in the prompt only when searched for.")


class SkillScanSettings(Section):
    """Whether installed skills are checked for dangerous contents."""

    enabled: bool = Field(True, description="Check them.")


class SkillEvolutionSettings(Section):
    """Whether agents may write skills."""

    enabled: bool = Field(False, description="Allow it.")
    moderation_model_name: str | None = Field(None, description="Model that reviews what they wrote.")
    security_fail_closed: bool = Field(True, description="Refuse when the review itself fails.")
