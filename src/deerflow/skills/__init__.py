"""Skills: tested instructions for one kind of work, as files."""

from deerflow.skills.archive import SUFFIX as SKILL_SUFFIX
from deerflow.skills.archive import read_member
from deerflow.skills.install import install_skill
from deerflow.skills.loader import Skill, Skills, read_skill

__all__ = ["SKILL_SUFFIX", "Skill", "Skills", "install_skill", "read_member", "read_skill"]
