"""Skills: tested instructions for one kind of work, as files."""

from deerflow.skills.archive import SUFFIX as SKILL_SUFFIX
from deerflow.skills.archive import read_member
from deerflow.skills.install import Installation, InstallOptions, SkillInstaller
from deerflow.skills.loader import SkillFolders, Skills, SkillSource, shipped_skills, skill_folders, skills_of
from deerflow.skills.read import read_skill
from deerflow.skills.scan import ScanFinding
from deerflow.skills.skill import SKILL_FILE, RequiredSecret, Skill, SkillProblem, package_digest
from deerflow.skills.versions import (
    CustomSkills,
    FileContent,
    SkillChange,
    Version,
    custom_skills_of,
    read_package,
)

__all__ = [
    "SKILL_FILE",
    "SKILL_SUFFIX",
    "CustomSkills",
    "FileContent",
    "InstallOptions",
    "Installation",
    "RequiredSecret",
    "ScanFinding",
    "Skill",
    "SkillChange",
    "SkillFolders",
    "SkillInstaller",
    "SkillProblem",
    "SkillSource",
    "Skills",
    "Version",
    "custom_skills_of",
    "package_digest",
    "read_member",
    "read_package",
    "read_skill",
    "shipped_skills",
    "skill_folders",
    "skills_of",
]
