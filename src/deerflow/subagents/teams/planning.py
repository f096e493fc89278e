"""Make a team's plan: the caller's, a model's, or one by fixed rules when the model's is invalid."""

import logging
from typing import Any

from deerflow.errors import DeerFlowError
from deerflow.subagents.config import SubagentConfig
from deerflow.subagents.teams.plan import TeamPlan, checked_plan, fallback_plan, read_plan
from deerflow.subagents.teams.result import PlanSource
from deerflow.subagents.teams.role_prompt import Briefing
from deerflow.subagents.teams.team_services import TeamCall, TeamServices

logger = logging.getLogger(__name__)

PLANNER_PROMPT = """\
<role>
You plan the work of a team. Decide which roles the goal needs, what each of them has to do, which steps
need the result of others, and how the results become one answer. Every step's task says all that its member
must know.
</role>"""


async def make_plan(office: TeamServices, call: TeamCall, briefing: Briefing) -> tuple[TeamPlan, PlanSource]:
    """Return the plan and its source; only an invalid plan of the caller raises."""
    request, roles, most = briefing.request, office.roles, office.settings.max_steps
    limits: dict[str, Any] = {"members": request.members, "max_steps": most}
    if request.steps:
        return checked_plan(TeamPlan(steps=request.steps), roles, **limits), "given"
    allowed = roles.among(request.members)
    if len(allowed) > 1 and not office.works_by_rules(call):
        config = SubagentConfig(
            name="team_planner",
            description="plans a team's work",
            system_prompt=PLANNER_PROMPT,
            tools=(),
            skills=(),
            max_turns=2,
            timeout_seconds=office.settings.planning_seconds,
            thinking=call.context.settings.subagents.thinking,
        )
        prompt = briefing.for_planner(allowed, most)
        made = await office.execute(call, "plan", config, description="Plan the team", prompt=prompt)
        said = made.ai_messages[-1].text if made.ai_messages else ""  # the result may be a summary of it
        try:
            return read_plan(said, roles, **limits), "model"
        except DeerFlowError as error:
            logger.warning("team %s plans by rules: %s", call.team_id, error)
    plan = fallback_plan(
        request.goal, allowed, named=bool(request.members), has_documents=bool(request.documents)
    )
    return checked_plan(plan, roles, **limits), "rules"
