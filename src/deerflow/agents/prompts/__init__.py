"""Sections of system prompts."""

from deerflow.agents.prompts.parts import (
    CITATIONS,
    WORKING_DIRECTORY,
    deferred_section,
    join_parts,
    skills_section,
)

__all__ = ["CITATIONS", "WORKING_DIRECTORY", "deferred_section", "join_parts", "skills_section"]
