"""The shared findings of running teams, and the tools with which members share and read them."""

from collections.abc import Iterator
from contextlib import contextmanager

from langchain_core.tools import BaseTool
from pydantic import BaseModel, Field

from deerflow.context import RunContext
from deerflow.errors import InvalidInputError
from deerflow.subagents.teams.findings import MAX_PART_CHARS, SHARE_FINDING, FindingsGraph, finding_of
from deerflow.tools.define import Runtime, tool_of

TEAM_FINDINGS = "team_findings"
BETWEEN = "."
"""Separates team id and step id in the id of a member's task; step ids cannot contain it."""


class Boards:
    """The findings of all teams running in this process, by run and team."""

    def __init__(self) -> None:
        self._graphs: dict[tuple[str, str], FindingsGraph] = {}

    @contextmanager
    def open(self, run_id: str, team_id: str) -> Iterator[FindingsGraph]:
        """Register a findings graph for the length of a block."""
        graph = self._graphs[run_id, team_id] = FindingsGraph()
        try:
            yield graph
        finally:
            self._graphs.pop((run_id, team_id), None)

    def of_member(self, context: RunContext) -> tuple[FindingsGraph, str]:
        """Return the findings of the member's team, and the id of the member's step."""
        team_id, _, step = (context.task_id or "").rpartition(BETWEEN)
        graph = self._graphs.get((context.run_id, team_id))
        if graph is None:
            raise InvalidInputError("only members of a team at work share findings")
        return graph, step


class ShareArguments(BaseModel):
    """What `share_finding` takes."""

    subject: str = Field(min_length=1, max_length=MAX_PART_CHARS, description="What it is about.")
    predicate: str = Field(min_length=1, max_length=MAX_PART_CHARS, description="Which property or relation.")
    object: str = Field(min_length=1, max_length=MAX_PART_CHARS, description="Its value or the other thing.")
    source: str = Field("", max_length=MAX_PART_CHARS, description="Where it is from: a path or an address.")


class FindingsArguments(BaseModel):
    """What `team_findings` takes."""

    about: str = Field("", max_length=MAX_PART_CHARS, description="Words to look for; empty shows all.")


def make_board_tools(boards: Boards) -> list[BaseTool]:
    """Return the tools for team members."""

    async def share(*, subject: str, predicate: str, object: str, source: str, runtime: Runtime) -> str:  # noqa: A002
        """Tell the whole team one finding as subject, predicate and object."""
        graph, step = boards.of_member(runtime.context)
        arguments = {"subject": subject, "predicate": predicate, "object": object, "source": source}
        finding = finding_of(arguments, step)
        if finding is None:
            raise InvalidInputError("subject, predicate and object need words")
        if not graph.add(finding):
            return "The team knows this already, or has all the findings it can keep."
        runtime.context.publish({"type": "team_finding", "task_id": runtime.context.task_id, **arguments})
        differing = [str(each) for each in graph.contradictions() if finding in each.findings]
        return f"Shared. The team disagrees, look into it: {differing[0]}" if differing else "Shared."

    async def show(*, about: str, runtime: Runtime) -> str:
        """Show what the team has found so far."""
        graph, _ = boards.of_member(runtime.context)
        return graph.render(about) or "Nothing yet."

    return [
        tool_of(SHARE_FINDING, ShareArguments, is_safe_to_repeat=True)(share),
        tool_of(TEAM_FINDINGS, FindingsArguments, is_safe_to_repeat=True)(show),
    ]
