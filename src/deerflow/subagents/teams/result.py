"""The outcome of each step, and the result of a team."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from deerflow.subagents.config import SubagentResult, SubagentStatus
from deerflow.subagents.teams.findings import FindingsGraph
from deerflow.subagents.teams.plan import TeamStep

PlanSource = Literal["given", "model", "rules"]
TeamStatus = Literal["completed", "partial", "rejected", "failed"]


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The outcome of one step."""

    step: TeamStep
    text: str
    error: str | None = None
    """Why the step is not done; `text` then has the findings so far."""
    answered: int = 0
    """Number of the member's questions that were answered."""

    @property
    def report(self) -> str:
        """The text for later steps and the editor."""
        return self.text if self.error is None else f"(not done: {self.error})\n{self.text}".strip()


@dataclass(frozen=True, slots=True)
class TeamResult:
    """The answer of a team, with step outcomes and findings."""

    team_id: str
    status: TeamStatus
    answer: str
    outcomes: Sequence[StepOutcome] = ()
    findings: FindingsGraph = field(default_factory=FindingsGraph)
    notes: Sequence[str] = ()
    """Remarks for the reader of the answer, such as failed steps."""


def outcome_of(step: TeamStep, result: SubagentResult) -> StepOutcome:
    """Return the outcome of a member's task."""
    error = result.error
    if result.status is not SubagentStatus.COMPLETED:
        error = error or str(result.status)
    elif early := ended_early(result):
        error = error or f"it ended early: {early}"
    elif not result.result:
        error = error or "it said nothing"
    return StepOutcome(step, result.result or "", error, result.answered)


def ended_early(result: SubagentResult) -> str | None:
    """Return why the last answer of a task ended early; None when it did not."""
    last = result.ai_messages[-1] if result.ai_messages else None
    reason = last.additional_kwargs.get("stop_reason") if last is not None else None
    return str(reason) if reason else None


def reports_of(outcomes: Sequence[StepOutcome]) -> dict[str, str]:
    """Return the reports by step id."""
    return {outcome.step.id: outcome.report for outcome in outcomes if outcome.report}


def joined_reports(outcomes: Sequence[StepOutcome], findings: FindingsGraph) -> str:
    """Return the concatenated reports and open contradictions: the answer without an editor."""
    authors: dict[str, list[str]] = {}
    for outcome in outcomes:
        authors.setdefault(outcome.report, []).append(f"{outcome.step.id} ({outcome.step.role})")
    parts = [f"## {', '.join(names)}\n\n{report}" for report, names in authors.items()]
    if disputes := findings.contradictions():
        parts.append("## Open contradictions\n\n" + "\n".join(f"- {each}" for each in disputes))
    return "\n\n".join(parts)
