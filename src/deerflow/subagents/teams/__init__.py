"""Teams: several roles that work on one goal by a plan, check the results and give one answer."""

from deerflow.subagents.teams.middleware import TEAM_REQUEST, TeamRequestMiddleware
from deerflow.subagents.teams.plan import TeamPlan, TeamStep
from deerflow.subagents.teams.request import TeamRequest
from deerflow.subagents.teams.result import StepOutcome, TeamResult
from deerflow.subagents.teams.roles import RoleRegistry, TeamRole
from deerflow.subagents.teams.team import ProjectAgentTeam
from deerflow.subagents.teams.team_services import TeamCall, TeamServices
from deerflow.subagents.teams.tool import RUN_TEAM, make_team_tool

__all__ = [
    "RUN_TEAM",
    "TEAM_REQUEST",
    "ProjectAgentTeam",
    "RoleRegistry",
    "StepOutcome",
    "TeamCall",
    "TeamPlan",
    "TeamRequest",
    "TeamRequestMiddleware",
    "TeamResult",
    "TeamRole",
    "TeamServices",
    "TeamStep",
    "make_team_tool",
]
