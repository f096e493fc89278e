"""Configured features that do not work, as reported by `doctor`, `/health` and the start-up log."""

from dataclasses import dataclass

SECURITY = frozenset({"auth", "authorization", "guardrails", "sandbox", "skill_scan"})
"""Security sections: their faults are reported first."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A configured feature that does not work."""

    key: str
    """The setting that configures it: `tools[2]`, `skills.path`."""
    text: str
    fix: str = ""
    is_security: bool = False
    is_broken: bool = True
    """False for a notice: no configured feature is missing."""

    def __str__(self) -> str:
        return "; ".join(filter(None, (f"{self.key}: {self.text}", self.fix)))
