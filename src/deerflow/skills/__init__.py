"""Skills: tested ways of doing one kind of work, as files."""

from deerflow.skills.loader import Skill, Skills, read_skill

__all__ = ["Skill", "Skills", "read_skill"]
