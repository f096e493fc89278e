"""Skills: tested instructions for one kind of work, as files."""

from deerflow.skills.archive import SUFFIX as SKILL_SUFFIX
from deerflow.skills.archive import read_member
from deerflow.skills.install import install_skill
from deerflow.skills.loader import SkillFolders, Skills, SkillSource
from deerflow.skills.read import read_skill
from deerflow.skills.skill import SKILL_FILE, RequiredSecret, Skill, SkillProblem, package_digest

__all__ = [
    "SKILL_FILE",
    "SKILL_SUFFIX",
    "RequiredSecret",
    "Skill",
    "SkillFolders",
    "SkillProblem",
    "SkillSource",
    "Skills",
    "install_skill",
    "package_digest",
    "read_member",
    "read_skill",
]
