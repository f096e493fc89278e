"""Run a team: plan, execute the steps in parallel where possible, and join the results into one answer.

Planner, members and editor are tasks of the executor. So limits, time-outs and cancelling are those of every
task, and when the call is executed again (after a crash, or with a person's answer) finished tasks return at
once. LangGraph assigns resume values by the order of the `interrupt` calls. So questions are asked only when
no member is running, level by level of the plan, and those answered before are asked again first.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from deerflow.errors import DeerFlowError, InvalidInputError
from deerflow.subagents.config import ResumeAnswer, SubagentResult
from deerflow.subagents.teams.approval import NOBODY, Ask, Decision, ask_person, decide, question_of
from deerflow.subagents.teams.editing import edit
from deerflow.subagents.teams.findings import FindingsGraph
from deerflow.subagents.teams.plan import TeamPlan, TeamStep, checked_plan, in_levels
from deerflow.subagents.teams.planning import make_plan
from deerflow.subagents.teams.request import TeamRequest
from deerflow.subagents.teams.result import (
    StepOutcome,
    TeamResult,
    TeamStatus,
    joined_reports,
    outcome_of,
    reports_of,
)
from deerflow.subagents.teams.role_prompt import Briefing, files_of
from deerflow.subagents.teams.team_services import TeamCall, TeamServices


class RejectedError(DeerFlowError):
    """A person refused an approval, or none can be asked; the team stops with its results so far."""

    code = "rejected"


class ProjectAgentTeam:
    """Runs a team for one goal: `plan`, `execute`, `aggregate`, or all of them with `run`."""

    def __init__(
        self,
        office: TeamServices,
        request: TeamRequest,
        *,
        call: TeamCall,
        findings: FindingsGraph,
        ask: Ask = ask_person,
    ) -> None:
        """Args: `findings` is shared by the members; `ask` puts a question to a person."""
        self._office = office
        self._request = request
        self._call = call
        self._ask = ask
        self._findings = findings
        self._briefing = Briefing(request)
        self._outcomes: dict[str, StepOutcome] = {}
        self._asking: dict[str, SubagentResult] = {}
        self._answers: dict[str, ResumeAnswer] = {}
        self._asked: Counter[str] = Counter()
        self._notes: list[str] = []

    @property
    def project_id(self) -> str:
        """Teams prefer the stored outcomes of teams with the same project id."""
        return self._request.project_id or self._call.context.thread_id

    async def run(self) -> TeamResult:
        """Plan, execute and join; failures are results: only cancellation and interrupts are raised."""
        self._publish("team_started", goal=self._request.goal)
        outcomes: Sequence[StepOutcome] = ()
        try:
            plan = await self.plan()
            outcomes = await self.execute(plan)
            answer, status = await self.aggregate(plan, outcomes)
        except RejectedError as error:
            outcomes = list(self._outcomes.values())
            self._notes.append(f"A person did not approve: {error}")
            answer, status = joined_reports(outcomes, self._findings), "rejected"
        result = TeamResult(self._call.team_id, status, answer, outcomes, self._findings, tuple(self._notes))
        await self._remember(result)
        self._publish("team_ended", status=status, findings=len(self._findings), notes=list(self._notes))
        return result

    async def plan(self) -> TeamPlan:
        """Return the plan; with `approve: ["plan"]`, after a person has approved it."""
        context = self._call.context
        experience = await self._office.experience.recall(
            user_id=context.user_id, project_id=self.project_id, goal=self._request.goal
        )
        self._briefing = Briefing(self._request, await files_of(context.sandbox), experience)
        plan, source = await make_plan(self._office, self._call, self._briefing)
        self._publish("team_planned", source=source, steps=[step.model_dump() for step in plan.steps])
        if "plan" not in self._request.approve:
            return plan
        decision = self._decide(
            "approve_plan", plan.model_dump(), "Shall the team work by this plan?", check=self._plan_in
        )
        return self._plan_in(decision.args) if decision.is_edited else plan

    async def execute(self, plan: TeamPlan) -> Sequence[StepOutcome]:
        """Execute every step, each as soon as the steps that it needs are done."""
        while len(self._outcomes) < len(plan.steps):
            await self._work(plan)
            self._ask_next(plan)
        return [self._outcomes[step.id] for step in plan.steps]

    async def aggregate(self, plan: TeamPlan, outcomes: Sequence[StepOutcome]) -> tuple[str, TeamStatus]:
        """Return one answer joined from all reports, and the status of the team."""
        failed = [each for each in outcomes if each.error is not None]
        self._notes += [f"Step {each.step.id} is not done: {each.error}" for each in failed]
        reports = [each for each in outcomes if each.text and not self._is_for_person(each.step)]
        if not reports:
            return "", "failed"
        if len(reports) == 1:
            answer = reports[0].text
        else:
            answer, note = await edit(
                self._office,
                self._call,
                self._briefing.for_editor(plan, reports_of(outcomes), self._findings),
            )
            answer = answer or joined_reports(outcomes, self._findings)
            self._notes += [note] if note else []
        if "result" in self._request.approve:
            decision = self._decide("approve_result", {"answer": answer}, "Is this the team's answer?")
            answer = str(decision.args.get("answer"))
        return answer, "partial" if failed else "completed"

    async def _work(self, plan: TeamPlan) -> None:
        """Run members until the remaining steps need a person; the end of a step may start others."""
        started: set[str] = set()
        async with asyncio.TaskGroup() as group:

            def begin() -> None:
                for step in self._ready(plan):
                    if step.id not in started and not self._is_for_person(step):
                        started.add(step.id)
                        group.create_task(finish(step))

            async def finish(step: TeamStep) -> None:
                result = await self._member(step)
                if result.question is not None:
                    self._asking[step.id] = result
                else:
                    self._outcomes[step.id] = outcome_of(step, result)
                    begin()

            begin()

    async def _member(self, step: TeamStep) -> SubagentResult:
        config = self._office.roles.get(step.role).config
        assert config is not None, "people are asked elsewhere"
        reports = reports_of(list(self._outcomes.values()))
        result = await self._office.execute(
            self._call,
            step.id,
            config,
            description=f"{step.role}: {step.id}",
            prompt=self._briefing.for_member(step, config, reports, self._findings),
            resume=self._answers.pop(step.id, None),
        )
        self._findings.learn(step.id, result.ai_messages)
        return result

    def _ask_next(self, plan: TeamPlan) -> None:
        """Put the next question to a person: a member's, or the approval of a step."""
        ready = [step.id for step in self._ready(plan)]
        for step in in_levels(plan.steps):
            if step.id in self._asking:
                result = self._asking.pop(step.id)
                answer = self._asked_again(step, result, result.question.number + 1 if result.question else 0)
                self._answers[step.id] = ResumeAnswer(answer)
                return
            if step.id in ready and self._is_for_person(step):
                self._outcomes[step.id] = self._approve_step(step)
                return
            if step.id in self._outcomes:
                self._asked_again(step, None, self._outcomes[step.id].answered)

    def _asked_again(self, step: TeamStep, result: SubagentResult | None, times: int) -> object:
        """Ask a member's question, after repeating those that were answered before this call was repeated."""
        answer: object = None
        question = question_of(result) if result is not None else {"answered_before": step.id}
        while self._asked[step.id] < times:
            answer = self._ask(question)
            self._asked[step.id] += 1
        return answer

    def _approve_step(self, step: TeamStep) -> StepOutcome:
        reports = reports_of(list(self._outcomes.values()))
        seen = {name: reports.get(name, "") for name in step.needs} or reports
        decision = self._decide("approve_step", {"step": step.id, "comment": "", "reports": seen}, step.task)
        comment = str(decision.args.get("comment") or "")
        return StepOutcome(step, f"A person approved this. {comment}".strip())

    def _decide(self, name: str, args: Mapping[str, Any], description: str, **more: Any) -> Decision:
        decision = Decision(False, args, NOBODY)
        context = self._call.context
        if context.is_interactive:
            patience = timedelta(seconds=context.settings.guardrails.ask_timeout_seconds)
            until = datetime.now(UTC) + patience
            decision = decide(self._ask, name, args, description, expires_at=until, **more)
        self._publish("team_decision", about=name, approved=decision.is_approved, edited=decision.is_edited)
        if not decision.is_approved:
            raise RejectedError(decision.message)
        return decision

    def _plan_in(self, args: Mapping[str, Any]) -> TeamPlan:
        try:
            plan = TeamPlan.model_validate(dict(args))
        except ValueError as error:
            raise InvalidInputError(f"the plan is not of the right form: {str(error)[:300]}") from error
        return checked_plan(plan, self._office.roles, max_steps=self._office.settings.max_steps)

    def _ready(self, plan: TeamPlan) -> list[TeamStep]:
        done = self._outcomes.keys()
        return [
            step
            for step in plan.steps
            if step.id not in done and step.id not in self._asking and done >= set(step.needs)
        ]

    def _is_for_person(self, step: TeamStep) -> bool:
        return self._office.roles.get(step.role).is_person

    async def _remember(self, result: TeamResult) -> None:
        if result.status in ("completed", "partial"):
            await self._office.experience.save(
                self._call.thread_id.rpartition("/")[2],
                user_id=self._call.context.user_id,
                project_id=self.project_id,
                goal=self._request.goal,
                outcome=result.answer,
                findings=self._findings,
            )

    def _publish(self, kind: str, **payload: Any) -> None:
        self._call.context.publish({"type": kind, "team_id": self._call.team_id, **payload})
