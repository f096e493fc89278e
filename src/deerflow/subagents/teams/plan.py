"""The request for a team, and its plan: steps with their roles and dependencies."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import orjson
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from deerflow.errors import InvalidInputError
from deerflow.subagents.teams.roles import Role, RoleRegistry

MAX_ID_CHARS = 32
MAX_TASK_CHARS = 20_000
MAX_GOAL_CHARS = 10_000
Line = Annotated[str, StringConstraints(min_length=1, max_length=2000)]
ProjectName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
_SPELLINGS = {"depends_on": "needs", "dependencies": "needs", "agent": "role", "prompt": "task"}
_WORDS = re.compile(r"[a-z0-9]+")


class TeamStep(BaseModel):
    """One member's part."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    id: str = Field(min_length=1, max_length=MAX_ID_CHARS, description="A short name of its own.")
    role: str = Field(min_length=1, max_length=100, description="Who does it.")
    task: str = Field(min_length=1, max_length=MAX_TASK_CHARS, description="What to do.")
    needs: list[str] = Field([], max_length=50, description="Ids of the steps whose results it builds on.")

    @model_validator(mode="before")
    @classmethod
    def _read_other_spellings(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        read = {_SPELLINGS.get(key, key): value for key, value in values.items()}
        return {**read, "needs": read.get("needs") or []}

    @field_validator("id", mode="before")
    @classmethod
    def _tidy(cls, name: Any) -> Any:
        return tidy_id(name) if isinstance(name, str | int | float) else name

    @field_validator("needs", mode="before")
    @classmethod
    def _tidy_all(cls, names: Any) -> Any:
        return [tidy_id(name) for name in names] if isinstance(names, list) else names


class TeamPlan(BaseModel):
    """All steps, and how their results are joined."""

    model_config = ConfigDict(extra="ignore")

    steps: list[TeamStep] = Field(min_length=1, max_length=50)
    aggregate: str = Field("", max_length=MAX_TASK_CHARS, description="How the results become one answer.")


class TeamRequest(BaseModel):
    """A goal for a team, and what it has to know; the same for the tool, the HTTP API and Python."""

    model_config = ConfigDict(extra="forbid")

    goal: str = Field(min_length=1, max_length=MAX_TASK_CHARS, description="What the team shall achieve.")
    members: list[str] = Field(
        [], max_length=50, description="Roles that may take part; empty lets the planner choose from all."
    )
    constraints: list[Line] = Field([], max_length=50, description="What every member has to keep to.")
    documents: list[Line] = Field(
        [], max_length=100, description="Paths of files to work from, below /mnt/user-data."
    )
    project_info: str = Field("", max_length=MAX_TASK_CHARS, description="Background all should know.")
    project_id: ProjectName | None = Field(
        None, description="Teams with the same one learn from each other; absent: this thread."
    )
    steps: list[TeamStep] = Field([], max_length=50, description="Your own plan instead of the planner's.")
    approve: list[Literal["plan", "result"]] = Field(
        [], description="What a person decides on before it counts."
    )


def tidy_id(name: str | float) -> str:
    """Return an id in normalized form; letters of every language are allowed."""
    return re.sub(r"[^\w-]+", "-", str(name).strip().lower()).strip("-_")[:MAX_ID_CHARS]


def read_plan(text: str, roles: RoleRegistry, *, members: Sequence[str], max_steps: int) -> TeamPlan:
    """Return the plan in a model's answer; raise `InvalidInputError` when it is invalid."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        raise InvalidInputError("the answer has no JSON object")
    try:
        plan = TeamPlan.model_validate(orjson.loads(text[start : end + 1]))
    except (orjson.JSONDecodeError, ValidationError) as error:
        raise InvalidInputError(f"the plan is not of the right form: {str(error)[:300]}") from error
    return checked_plan(plan, roles, members=members, max_steps=max_steps)


def checked_plan(
    plan: TeamPlan, roles: RoleRegistry, *, members: Sequence[str] = (), max_steps: int
) -> TeamPlan:
    """Return a valid plan with normalized role names; raise `InvalidInputError` otherwise."""
    if len(plan.steps) > max_steps:
        raise InvalidInputError(f"the plan has {len(plan.steps)} steps; teams.max_steps allows {max_steps}")
    allowed = [role.name for role in roles.among(members)]
    steps = [step.model_copy(update={"role": roles.get(step.role).name}) for step in plan.steps]
    ids = [step.id for step in steps]
    for step in steps:
        if step.role not in allowed:
            raise InvalidInputError(
                f"step {step.id}: {step.role} is no member; there are: {', '.join(allowed)}"
            )
        if unknown := sorted(set(step.needs) - set(ids)):
            raise InvalidInputError(f"step {step.id} needs {', '.join(unknown)}, which is no step")
    if len(set(ids)) < len(ids):
        raise InvalidInputError("every step needs an id of its own")
    ordered = {step.id for step in in_levels(steps)}
    if cyclic := [step.id for step in steps if step.id not in ordered]:
        raise InvalidInputError(f"the steps {', '.join(cyclic)} wait for each other")
    return plan.model_copy(update={"steps": steps})


def in_levels(steps: Sequence[TeamStep]) -> list[TeamStep]:
    """Return the steps in topological order, level by level; steps in cycles are left out."""
    ordered: list[TeamStep] = []
    done: set[str] = set()
    while ready := [step for step in steps if step.id not in done and done.issuperset(step.needs)]:
        ordered += ready
        done.update(step.id for step in ready)
    return ordered


def fallback_plan(goal: str, roles: Sequence[Role], *, named: bool, has_documents: bool) -> TeamPlan:
    """Return a plan by fixed rules: matching roles work in parallel, then checkers, then approvers.

    Args:
        roles: The roles that may be used.
        named: The caller chose the roles, so all of them are used.
    """
    chosen = list(roles) if named else _matching(goal, roles, has_documents=has_documents)
    steps: list[TeamStep] = []
    for stage in ("work", "check", "approve"):
        before = [step.id for step in steps]
        steps += [_step(role, goal, before) for role in chosen if role.stage == stage]
    return TeamPlan(steps=steps)


def _step(role: Role, goal: str, before: list[str]) -> TeamStep:
    if role.stage == "work":
        before = []
    part = {"work": "Your part", "check": "Check the work so far", "approve": "Is this right?"}[role.stage]
    task = f"{goal[:MAX_GOAL_CHARS]}\n\n{part}: {role.description}"
    return TeamStep(id=tidy_id(role.name), role=role.name, task=task, needs=before)


def _matching(goal: str, roles: Sequence[Role], *, has_documents: bool) -> list[Role]:
    matching = [
        role
        for role in roles
        if role.stage != "approve" and any(_mentions(goal.lower(), topic.lower()) for topic in role.topics)
    ]
    if any(role.stage == "work" for role in matching):
        return matching
    default = "document_review" if has_documents else "market_researcher"
    workers = [role for role in roles if role.stage == "work"]
    preferred = [role for role in workers if role.name == default] or workers[:1]
    return [*preferred, *matching]


def _mentions(goal: str, topic: str) -> bool:
    """Return whether a word of the goal starts with the topic; Chinese has no spaces: it may be anywhere."""
    if not topic.isascii():
        return topic in goal
    return any(word.startswith(topic) for word in _WORDS.findall(goal))
