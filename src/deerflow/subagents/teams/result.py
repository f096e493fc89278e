"""How a team's work stands in the end."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from deerflow.subagents.teams.findings import FindingsGraph
from deerflow.subagents.teams.plan import TeamStep

PlanSource = Literal["given", "model", "rules"]
TeamStatus = Literal["completed", "partial", "rejected", "failed"]


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What came out of one step."""

    step: TeamStep
    text: str
    error: str | None = None
    """Why the step is not done; `text` is then what was found so far."""

    @property
    def report(self) -> str:
        """What later steps and the editor read of it."""
        return self.text if self.error is None else f"(not done: {self.error})\n{self.text}".strip()


@dataclass(frozen=True, slots=True)
class TeamResult:
    """The answer of a team, with everything that led to it."""

    team_id: str
    status: TeamStatus
    answer: str
    outcomes: Sequence[StepOutcome] = ()
    findings: FindingsGraph = field(default_factory=FindingsGraph)
    notes: Sequence[str] = ()
    """What a reader has to know beside the answer."""


def reports_of(outcomes: Sequence[StepOutcome]) -> dict[str, str]:
    """Return what each step reported, by its id."""
    return {outcome.step.id: outcome.report for outcome in outcomes if outcome.report}


def joined_reports(outcomes: Sequence[StepOutcome], findings: FindingsGraph) -> str:
    """Return the reports one after the other, with what is in dispute: the answer without an editor."""
    authors: dict[str, list[str]] = {}
    for outcome in outcomes:
        authors.setdefault(outcome.report, []).append(f"{outcome.step.id} ({outcome.step.role})")
    parts = [f"## {', '.join(names)}\n\n{report}" for report, names in authors.items()]
    if disputes := findings.contradictions():
        parts.append("## Open contradictions\n\n" + "\n".join(f"- {each}" for each in disputes))
    return "\n\n".join(parts)
