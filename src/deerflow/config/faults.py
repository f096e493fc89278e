"""A configured thing that does not work: what doctor, `/health` and the log at start-up name."""

from dataclasses import dataclass

SECURITY = frozenset({"auth", "authorization", "guardrails", "sandbox", "skill_scan"})
"""Sections that protect somebody: what does not work there is named first."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that the settings ask for and do not get."""

    key: str
    """Where the settings ask for it: `tools[2]`, `skills.path`."""
    text: str
    fix: str = ""
    is_security: bool = False
    is_broken: bool = True
    """False: worth knowing, but nothing that was asked for is missing."""

    def __str__(self) -> str:
        return "; ".join(filter(None, (f"{self.key}: {self.text}", self.fix)))
