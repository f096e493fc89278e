"""Settings of teams: limits, and custom roles in addition to the built-in ones."""

from typing import Literal

from pydantic import Field

from deerflow.config.section import Section
from deerflow.config.subagents import CustomSubagent

TeamStage = Literal["work", "check", "approve"]


class TeamRoleSettings(CustomSubagent):
    """A role of your own; with the name of a built-in one it takes its place."""

    topics: tuple[str, ...] = Field(
        (), description="Words of a goal that call for this role when no model makes the plan."
    )
    stage: Literal["work", "check"] = Field(
        "work", description="`check` comes after all work when no model makes the plan."
    )


class TeamsSettings(Section):
    """How several roles work on one goal."""

    enabled: bool = Field(True, description="The lead agent may call a team where it may delegate.")
    max_steps: int = Field(12, ge=1, le=50, description="Steps of one plan.")
    planning_seconds: float = Field(180, ge=1, description="Seconds that a plan or the joining may take.")
    roles: dict[str, TeamRoleSettings] = Field({}, description="Roles of your own, by name.")
