"""Teams: several roles that work on one goal by a plan, check the results and give one answer."""

from deerflow.subagents.teams.plan import TeamPlan, TeamRequest, TeamStep
from deerflow.subagents.teams.roles import Role, RoleRegistry
from deerflow.subagents.teams.team import (
    ProjectAgentTeam,
    StepOutcome,
    TeamCall,
    TeamResult,
    TeamServices,
)
from deerflow.subagents.teams.tool import RUN_TEAM, TEAM_REQUEST, TeamRequestMiddleware, make_team_tool

__all__ = [
    "RUN_TEAM",
    "TEAM_REQUEST",
    "ProjectAgentTeam",
    "Role",
    "RoleRegistry",
    "StepOutcome",
    "TeamCall",
    "TeamPlan",
    "TeamRequest",
    "TeamRequestMiddleware",
    "TeamResult",
    "TeamServices",
    "TeamStep",
    "make_team_tool",
]
