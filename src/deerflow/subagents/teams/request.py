"""The request for a team, shared by the lead agent's tool, the HTTP API and Python."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from deerflow.subagents.teams.plan import MAX_TASK_CHARS, TeamStep

Line = Annotated[str, StringConstraints(min_length=1, max_length=2000)]
ProjectName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class TeamRequest(BaseModel):
    """A goal for a team, and what it has to know."""

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
