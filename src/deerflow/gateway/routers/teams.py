"""Routes for teams: list roles, and start runs that begin with a team.

Such a run is an ordinary run: it is streamed, cancelled, resumed and listed through the routes of runs.
"""

from fastapi import APIRouter
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.errors import ConflictError, InvalidInputError, NotFoundError
from deerflow.gateway.deps import CurrentApp, ThreadPath, json_response
from deerflow.gateway.openapi import answers
from deerflow.gateway.routers.runs import CurrentCaller, create_run, stream_run
from deerflow.gateway.run_request import RunCreate
from deerflow.subagents.teams import TEAM_REQUEST, RoleRegistry, TeamPlan, TeamRequest
from deerflow.subagents.teams.plan import checked_plan

router = APIRouter(tags=["teams"])


class TeamRunCreate(RunCreate):
    """A run that begins with a team: the fields of a run, and `team`."""

    team: TeamRequest

    def as_run(self) -> RunCreate:
        """Return the body of the run: the goal becomes its message, the rest is in its context."""
        goal = {"messages": [{"type": "human", "content": self.team.goal}]}
        team = self.team.model_dump(exclude_defaults=True)
        context = {**(self.context or {}), "subagent_enabled": True, TEAM_REQUEST: team}
        return self.model_copy(update={"input": self.input or goal, "context": context})


@router.get("/teams/roles", operation_id="list_team_roles", **answers("TeamRoles"))
async def list_roles(deerflow: CurrentApp) -> Response:
    """List the roles that members of a team may have."""
    roles = [
        {"name": role.name, "description": role.description, "stage": role.stage} for role in _roles(deerflow)
    ]
    return json_response({"roles": roles})


@router.post("/threads/{thread_id}/teams/runs", **answers("Run", 400, 404, 409))
async def create_team_run(thread_id: ThreadPath, body: TeamRunCreate, caller: CurrentCaller) -> Response:
    """Start a run on a thread that begins with a team of sub-agents, in the background.

    The body is that of a run with the field `team`. Unknown roles and plans that cannot work answer 400,
    `teams.enabled: false` 409.
    """
    _check(caller.deerflow, body.team)
    return await create_run(thread_id, body.as_run(), caller)


@router.post("/threads/{thread_id}/teams/runs/stream", **answers("events", 400, 404, 409))
async def stream_team_run(thread_id: ThreadPath, body: TeamRunCreate, caller: CurrentCaller) -> Response:
    """Start a run on a thread that begins with a team of sub-agents, and stream its events until it ends.

    The body is that of a run with the field `team`. Unknown roles and plans that cannot work answer 400,
    `teams.enabled: false` 409.
    """
    _check(caller.deerflow, body.team)
    return await stream_run(thread_id, body.as_run(), caller)


def _check(deerflow: DeerFlow, team: TeamRequest) -> None:
    """Reject a team that could only fail, before anything is stored."""
    settings = deerflow.settings.teams
    if not settings.enabled:
        raise ConflictError("teams are switched off here; set teams.enabled to true")
    try:
        _roles(deerflow).among(team.members)
        if team.steps:
            plan = TeamPlan(steps=team.steps)
            checked_plan(plan, _roles(deerflow), members=team.members, max_steps=settings.max_steps)
    except NotFoundError as error:  # a role in the body, not the resource of the URL
        raise InvalidInputError(str(error)) from error


def _roles(deerflow: DeerFlow) -> RoleRegistry:
    return RoleRegistry(deerflow.settings.teams, deerflow.settings.subagents)
