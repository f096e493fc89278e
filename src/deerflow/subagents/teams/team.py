"""Run a team: plan, execute the steps in parallel where possible, and join the results into one answer.

Planner, members and editor are tasks of the executor. So limits, time-outs and cancelling are those of every
task, and when the call is executed again (after a crash, or with a person's answer) finished tasks return at
once. LangGraph assigns resume values by the order of the `interrupt` calls. So questions are asked only when
no member is running, level by level of the plan, and those answered before are asked again first.
"""

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self

from langchain.agents.middleware.human_in_the_loop import ActionRequest, HITLRequest, ReviewConfig
from langgraph.types import interrupt

from deerflow.agents.middlewares.approval import read_decision
from deerflow.config import resolve_use
from deerflow.config.agents import TeamsSettings
from deerflow.context import RunContext
from deerflow.errors import DeerFlowError, InvalidInputError
from deerflow.subagents.config import (
    ResumeAnswer,
    SubagentConfig,
    SubagentResult,
    SubagentStatus,
)
from deerflow.subagents.delegation import TaskFactory
from deerflow.subagents.teams.findings import (
    ID_SEPARATOR,
    FindingsBoards,
    FindingsGraph,
    TeamExperience,
    make_findings_tools,
)
from deerflow.subagents.teams.plan import (
    TeamPlan,
    TeamRequest,
    TeamStep,
    checked_plan,
    fallback_plan,
    in_levels,
    read_plan,
)
from deerflow.subagents.teams.prompts import EDITOR_PROMPT, PLANNER_PROMPT, TeamPrompts, files_of
from deerflow.subagents.teams.roles import Role, RoleRegistry

logger = logging.getLogger(__name__)

PlanSource = Literal["given", "coordinator", "model", "rules"]
TeamStatus = Literal["completed", "partial", "rejected", "failed"]
Ask = Callable[[Any], Any]
"""Puts a request to a person and returns the answer; inside a run that is LangGraph's `interrupt`."""

NOBODY = "nobody can answer in this run"
MAX_QUESTIONS = 5
"""How often a question is asked while the answers are invalid."""


class RejectedError(DeerFlowError):
    """A person refused an approval, or none can be asked; the team stops with its results so far."""

    code = "rejected"


@dataclass(frozen=True, slots=True)
class TeamCall:
    """The identity of a team, the same after a restart, and the context of its run."""

    team_id: str
    thread_id: str
    """Prefix of the checkpoint threads of its tasks."""
    context: RunContext


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


@dataclass(frozen=True, eq=False, slots=True)
class TeamServices:
    """What all teams share, for one value of the settings: roles, findings, experience, and their tasks."""

    settings: TeamsSettings
    roles: RoleRegistry
    tasks: TaskFactory
    boards: FindingsBoards
    experience: TeamExperience

    @classmethod
    def open(cls, settings: TeamsSettings, roles: RoleRegistry, tasks: TaskFactory) -> Self:
        """Create the services; members get the tools of sub-agents and those for shared findings."""
        boards = FindingsBoards()
        builder = replace(tasks.builder, extra_tools=make_findings_tools(boards))
        return cls(settings, roles, replace(tasks, builder=builder), boards, TeamExperience(builder.store))

    def works_by_rules(self, call: TeamCall) -> bool:
        """Return whether the run's model cannot reason, so that fixed rules plan and join."""
        return not self.tasks.builder.models.can_reason(call.context.options.model_name)

    async def execute(
        self,
        call: TeamCall,
        name: str,
        config: SubagentConfig,
        *,
        description: str,
        prompt: str,
        resume: ResumeAnswer | None = None,
    ) -> SubagentResult:
        """Run one task of a team until it ends or asks; a task that cannot be started is a failed result."""
        task_id = f"{call.team_id}{ID_SEPARATOR}{name}"
        try:
            self.tasks.check_total(call.context, task_id)
            task = self.tasks.new_task(
                config,
                task_id=task_id,
                thread_id=f"{call.thread_id}{ID_SEPARATOR}{name}",
                description=description,
                prompt=prompt,
                context=call.context,
                resume=resume,
            )
            return await self.tasks.executor.execute(task)
        except DeerFlowError as error:
            trace_id = call.context.trace_id
            return SubagentResult(task_id, trace_id, status=SubagentStatus.FAILED, error=str(error))

    async def plan(self, call: TeamCall, prompts: TeamPrompts) -> tuple[TeamPlan, PlanSource]:
        """Return the caller's plan, the coordinator's, a model's, or one by rules; and which it is.

        Only an invalid plan of the caller raises.
        """
        request, max_steps = prompts.request, self.settings.max_steps
        limits: dict[str, Any] = {"members": request.members, "max_steps": max_steps}
        if request.steps:
            return checked_plan(TeamPlan(steps=request.steps), self.roles, **limits), "given"
        allowed = self.roles.among(request.members)
        if self.settings.coordinator is not None:
            try:
                return checked_plan(
                    await self._coordinated(request, allowed), self.roles, **limits
                ), "coordinator"
            except Exception as error:  # foreign code may raise anything; the team works without it
                logger.warning("team %s: %s cannot plan: %s", call.team_id, self.settings.coordinator, error)
        if len(allowed) > 1 and not self.works_by_rules(call):
            config = self._helper("team_planner", "plans a team's work", PLANNER_PROMPT, call)
            prompt = prompts.for_planner(allowed, max_steps)
            made = await self.execute(call, "plan", config, description="Plan the team", prompt=prompt)
            answer = made.ai_messages[-1].text if made.ai_messages else ""  # the result may be a summary
            try:
                return read_plan(answer, self.roles, **limits), "model"
            except DeerFlowError as error:
                logger.warning("team %s: plan made by rules: %s", call.team_id, error)
        plan = fallback_plan(
            request.goal, allowed, named=bool(request.members), has_documents=bool(request.documents)
        )
        return checked_plan(plan, self.roles, **limits), "rules"

    async def _coordinated(self, request: TeamRequest, roles: Sequence[Role]) -> TeamPlan:
        """Return the plan of the configured function, which may be synchronous or asynchronous."""
        coordinate: Any = await asyncio.to_thread(resolve_use, self.settings.coordinator or "")
        plan = coordinate(request, roles)
        if inspect.isawaitable(plan):
            plan = await plan
        return plan if isinstance(plan, TeamPlan) else TeamPlan.model_validate({"steps": plan})

    async def join(self, call: TeamCall, prompt: str) -> tuple[str, str]:
        """Return the editor's answer and a note on its problems; the answer is empty when there is none."""
        if self.works_by_rules(call):
            return "", ""
        config = self._helper("team_editor", "joins a team's results", EDITOR_PROMPT, call)
        result = await self.execute(call, "join", config, description="Join the results", prompt=prompt)
        early = ended_early(result)
        if result.status is SubagentStatus.COMPLETED and result.result and early != "empty_answer":
            return result.result, f"The joined answer ended early: {early}" if early else ""
        return "", f"The results stand side by side: {result.error or 'the editor said nothing'}"

    def _helper(self, name: str, description: str, prompt: str, call: TeamCall) -> SubagentConfig:
        return SubagentConfig(
            name,
            description,
            prompt,
            tools=(),
            skills=(),
            max_turns=2,
            timeout_seconds=self.settings.planning_seconds,
            thinking=call.context.settings.subagents.thinking,
        )


class ProjectAgentTeam:
    """Runs a team for one goal: `plan`, `execute`, `aggregate`, or all of them with `run`."""

    def __init__(
        self,
        services: TeamServices,
        request: TeamRequest,
        *,
        call: TeamCall,
        findings: FindingsGraph,
        ask: Ask = interrupt,
    ) -> None:
        """Args: `findings` is shared by the members; `ask` puts a question to a person."""
        self._services = services
        self._request = request
        self._call = call
        self._ask = ask
        self._findings = findings
        self._prompts = TeamPrompts(request)
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
        if status in ("completed", "partial"):
            await self._services.experience.save(
                self._call.thread_id.rpartition("/")[2],
                user_id=self._call.context.user_id,
                project_id=self.project_id,
                goal=self._request.goal,
                outcome=answer,
                findings=self._findings,
            )
        self._publish("team_ended", status=status, findings=len(self._findings), notes=list(self._notes))
        return result

    async def plan(self) -> TeamPlan:
        """Return the plan; with `approve: ["plan"]`, after a person has approved it."""
        context = self._call.context
        experience = await self._services.experience.recall(
            user_id=context.user_id, project_id=self.project_id, goal=self._request.goal
        )
        self._prompts = TeamPrompts(self._request, await files_of(context.sandbox), experience)
        plan, source = await self._services.plan(self._call, self._prompts)
        self._publish("team_planned", source=source, steps=[step.model_dump() for step in plan.steps])
        if "plan" not in self._request.approve:
            return plan
        decision = self._decide(
            "approve_plan", plan.model_dump(), "Shall the team work by this plan?", check=self._edited_plan
        )
        return self._edited_plan(decision.args) if decision.is_edited else plan

    async def execute(self, plan: TeamPlan) -> Sequence[StepOutcome]:
        """Execute every step, each as soon as the steps that it needs are done."""
        while len(self._outcomes) < len(plan.steps):
            await self._run_members(plan)
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
            prompt = self._prompts.for_editor(plan, reports_of(outcomes), self._findings)
            answer, note = await self._services.join(self._call, prompt)
            answer = answer or joined_reports(outcomes, self._findings)
            self._notes += [note] if note else []
        if "result" in self._request.approve:
            decision = self._decide("approve_result", {"answer": answer}, "Is this the team's answer?")
            answer = str(decision.args.get("answer"))
        return answer, "partial" if failed else "completed"

    async def _run_members(self, plan: TeamPlan) -> None:
        """Run members until the remaining steps need a person; the end of a step may start others."""
        started: set[str] = set()
        async with asyncio.TaskGroup() as group:

            def start_ready() -> None:
                for step in self._ready(plan):
                    if step.id not in started and not self._is_for_person(step):
                        started.add(step.id)
                        group.create_task(run(step))

            async def run(step: TeamStep) -> None:
                result = await self._run_member(step)
                if result.question is not None:
                    self._asking[step.id] = result
                else:
                    self._outcomes[step.id] = outcome_of(step, result)
                    start_ready()

            start_ready()

    async def _run_member(self, step: TeamStep) -> SubagentResult:
        config = self._services.roles.get(step.role).config
        assert config is not None, "people are asked elsewhere"
        reports = reports_of(list(self._outcomes.values()))
        result = await self._services.execute(
            self._call,
            step.id,
            config,
            description=f"{step.role}: {step.id}",
            prompt=self._prompts.for_member(step, config, reports, self._findings),
            resume=self._answers.pop(step.id, None),
        )
        self._findings.add_from_messages(step.id, result.ai_messages)
        return result

    def _ask_next(self, plan: TeamPlan) -> None:
        """Put the next question to a person: a member's, or the approval of a step."""
        ready = [step.id for step in self._ready(plan)]
        for step in in_levels(plan.steps):
            if step.id in self._asking:
                result = self._asking.pop(step.id)
                times = result.question.number + 1 if result.question else 0
                self._answers[step.id] = ResumeAnswer(self._ask_again(step, result, times))
                return
            if step.id in ready and self._is_for_person(step):
                self._outcomes[step.id] = self._approve_step(step)
                return
            if step.id in self._outcomes:
                self._ask_again(step, None, self._outcomes[step.id].answered)

    def _ask_again(self, step: TeamStep, result: SubagentResult | None, times: int) -> object:
        """Ask a member's question, after repeating those that were answered before this call was repeated."""
        answer: object = None
        question: Any = {"answered_before": step.id}
        if result is not None:
            question = result.question.value if result.question is not None else None
            if isinstance(question, Mapping):
                question = {**question, "task_id": result.task_id}
        while self._asked[step.id] < times:
            answer = self._ask(question)
            self._asked[step.id] += 1
        return answer

    def _approve_step(self, step: TeamStep) -> StepOutcome:
        reports = reports_of(list(self._outcomes.values()))
        shown = {name: reports.get(name, "") for name in step.needs} or reports
        decision = self._decide("approve_step", {"step": step.id, "comment": "", "reports": shown}, step.task)
        comment = str(decision.args.get("comment") or "")
        return StepOutcome(step, f"A person approved this. {comment}".strip())

    def _decide(self, name: str, args: Mapping[str, Any], description: str, **more: Any) -> "TeamDecision":
        decision = TeamDecision(False, args, NOBODY)
        context = self._call.context
        if context.is_interactive:
            timeout = timedelta(seconds=context.settings.guardrails.ask_timeout_seconds)
            expires_at = datetime.now(UTC) + timeout
            decision = decide(self._ask, name, args, description, expires_at=expires_at, **more)
        self._publish("team_decision", about=name, approved=decision.is_approved, edited=decision.is_edited)
        if not decision.is_approved:
            raise RejectedError(decision.message)
        return decision

    def _edited_plan(self, args: Mapping[str, Any]) -> TeamPlan:
        try:
            plan = TeamPlan.model_validate(dict(args))
        except ValueError as error:
            raise InvalidInputError(f"the plan is not of the right form: {str(error)[:300]}") from error
        return checked_plan(plan, self._services.roles, max_steps=self._services.settings.max_steps)

    def _ready(self, plan: TeamPlan) -> list[TeamStep]:
        done = self._outcomes.keys()
        return [
            step
            for step in plan.steps
            if step.id not in done and step.id not in self._asking and done >= set(step.needs)
        ]

    def _is_for_person(self, step: TeamStep) -> bool:
        return self._services.roles.get(step.role).is_person

    def _publish(self, kind: str, **payload: Any) -> None:
        self._call.context.publish({"type": kind, "team_id": self._call.team_id, **payload})


@dataclass(frozen=True, slots=True)
class TeamDecision:
    """A person's decision."""

    is_approved: bool
    args: Mapping[str, Any]
    """The arguments in question, with the person's edits."""
    message: str = ""
    is_edited: bool = False

    @classmethod
    def of(cls, answer: Any, name: str, args: Mapping[str, Any]) -> Self:
        """Return the decision in an answer about `args`."""
        given = read_decision(answer, name)
        if given.kind == "reject":
            return cls(False, args, given.message or "no reason given")
        return cls(True, {**args, **(given.args or {})}, is_edited=given.kind == "edit")


def decide(
    ask: Ask,
    name: str,
    args: Mapping[str, Any],
    description: str,
    *,
    check: Callable[[Mapping[str, Any]], object] = lambda args: None,
    expires_at: datetime | None = None,
) -> TeamDecision:
    """Ask a person to approve `args`; an invalid answer is asked for again, with the reason.

    Args:
        check: Raises `InvalidInputError` for edited arguments that cannot be used.
        expires_at: When the question expires; None: never.
    """
    problem = ""
    expiry = {} if expires_at is None else {"expires_at": expires_at.isoformat()}
    for _ in range(MAX_QUESTIONS):
        action = ActionRequest(name=name, args=dict(args), description=f"{problem}{description}")
        review = ReviewConfig(action_name=name, allowed_decisions=["approve", "edit", "reject"])
        try:
            answer = ask({**HITLRequest(action_requests=[action], review_configs=[review]), **expiry})
            decision = TeamDecision.of(answer, name, args)
            if decision.is_edited:
                check(decision.args)
            return decision
        except InvalidInputError as error:
            problem = f"The last answer could not be used: {error}\n"
    return TeamDecision(False, args, f"{MAX_QUESTIONS} answers in a row could not be used")


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
    if contradictions := findings.contradictions():
        parts.append("## Open contradictions\n\n" + "\n".join(f"- {each}" for each in contradictions))
    return "\n\n".join(parts)
