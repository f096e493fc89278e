"""The `run_team` tool, and the middleware that calls it at once in runs that were created for a team.

Such a run has the team request in its context. Its first answer is the `run_team` call, created here instead
of by a model: the request needs no interpretation. Otherwise it is a normal run with the same durability, and
the lead agent's model is called when the team is done.
"""

from typing import Any, ClassVar

from langchain_core.messages import AIMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.tools import BaseTool
from pydantic import ConfigDict
from typing_extensions import override

from deerflow.agents.messages import call_id
from deerflow.agents.middlewares import AgentKind, ChainMiddleware
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.domain import new_id
from deerflow.subagents.delegation import task_thread
from deerflow.subagents.teams.findings import ID_SEPARATOR
from deerflow.subagents.teams.plan import TeamRequest
from deerflow.subagents.teams.team import ProjectAgentTeam, TeamCall, TeamResult, TeamServices
from deerflow.tools.define import Runtime, tool_of

RUN_TEAM = "run_team"
TEAM_REQUEST = "team_request"
"""The key of the team request in a run's context."""

DESCRIPTION = """\
Let a team of specialists work on one goal: planned, done side by side where possible, checked and joined.

Use it for a goal that needs several professions or a check by somebody else. For parts of the same kind use
task. The members see neither this conversation nor each other's, so goal, constraints and documents must
say everything.
Roles: {roles}."""


class TeamArguments(TeamRequest):
    """What `run_team` takes; what models add to it does no harm."""

    model_config = ConfigDict(extra="ignore")


def make_team_tool(services: TeamServices) -> BaseTool:
    """Return the `run_team` tool for lead agents with these settings."""

    async def run_team(*, runtime: Runtime, **values: Any) -> ToolMessage:
        team_id, context = runtime.tool_call_id or "", runtime.context
        messages = runtime.state.get("messages", ())
        thread_id = task_thread(context.thread_id, team_id, messages, tool=RUN_TEAM)
        request = TeamRequest.model_construct(**values)
        with services.boards.open(context.run_id, team_id) as findings:
            call = TeamCall(team_id, thread_id, context)
            result = await ProjectAgentTeam(services, request, call=call, findings=findings).run()
        return result_message(result, usage=usage_of(services, call))

    run_team.__doc__ = DESCRIPTION.format(roles=", ".join(role.name for role in services.roles))
    # Members continue from their own checkpoints, and repeated effects are checked for their own tools.
    return tool_of(RUN_TEAM, TeamArguments, is_safe_to_repeat=True)(run_team)


def result_message(result: TeamResult, *, usage: dict[str, int]) -> ToolMessage:
    """Return the tool message with the result: text for the lead agent, fields for clients."""
    head = {
        "completed": "The team is done.",
        "partial": "The team is done, but not with everything.",
        "rejected": "The team stopped: its work was not approved.",
        "failed": "The team found nothing.",
    }[result.status]
    notes = "\n".join(f"- {note}" for note in result.notes)
    team = {
        "status": result.status,
        "steps": [
            {"id": each.step.id, "role": each.step.role, "error": each.error} for each in result.outcomes
        ],
        "findings": [str(finding) for finding in result.findings.about()],
        "contradictions": [str(each) for each in result.findings.contradictions()],
        "notes": list(result.notes),
    }
    fields: dict[str, Any] = {"team": team, **({"subagent_token_usage": usage} if usage else {})}
    return ToolMessage(
        "\n\n".join(part for part in (head, notes, result.answer) if part),
        tool_call_id=result.team_id,
        name=RUN_TEAM,
        status="success" if result.status in ("completed", "partial") else "error",
        additional_kwargs=fields,
    )


def usage_of(services: TeamServices, call: TeamCall) -> dict[str, int]:
    """Return the tokens used by all tasks of a team."""
    prefix = f"{call.team_id}{ID_SEPARATOR}"
    parts = [
        task.token_usage
        for task in services.tasks.executor.list(call.context.run_id)
        if task.task_id.startswith(prefix)
    ]
    return {name: sum(part.get(name, 0) for part in parts) for name in sorted({n for p in parts for n in p})}


class TeamRequestMiddleware(ChainMiddleware):
    """Answers the user's message with the `run_team` call when the run's context has a team request."""

    applies_to: ClassVar[AgentKind] = AgentKind.LEAD

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        team = request.runtime.context.extra.get(TEAM_REQUEST)
        messages = request.state["messages"]
        if not isinstance(team, dict) or not messages or not isinstance(messages[-1], HumanMessage):
            return await handler(request)
        call = ToolCall(name=RUN_TEAM, args=team, id=call_id("team", request.runtime.context.run_id))
        return AIMessage("", tool_calls=[call], id=new_id())
