"""The `run_team` tool: runs a team for one goal and returns its answer."""

import hashlib
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import BaseTool
from pydantic import ConfigDict

from deerflow.subagents.teams.board import BETWEEN
from deerflow.subagents.teams.request import TeamRequest
from deerflow.subagents.teams.result import TeamResult
from deerflow.subagents.teams.team import ProjectAgentTeam
from deerflow.subagents.teams.team_services import TeamCall, TeamServices
from deerflow.tools.define import Runtime, tool_of

RUN_TEAM = "run_team"

DESCRIPTION = """\
Let a team of specialists work on one goal: planned, done side by side where possible, checked and joined.

Use it for a goal that needs several professions or a check by somebody else. For parts of the same kind use
task. The members see neither this conversation nor each other's, so goal, constraints and documents must
say everything.
Roles: {roles}."""


class TeamArguments(TeamRequest):
    """What `run_team` takes; what models add to it does no harm."""

    model_config = ConfigDict(extra="ignore")


def make_team_tool(office: TeamServices) -> BaseTool:
    """Return the `run_team` tool for lead agents with these settings."""

    async def run_team(*, runtime: Runtime, **values: Any) -> ToolMessage:
        call_id = runtime.tool_call_id or ""
        context = runtime.context
        thread_id = team_thread(context.thread_id, call_id, runtime.state.get("messages", ()))
        request = TeamRequest.model_construct(**values)
        with office.boards.open(context.run_id, call_id) as findings:
            call = TeamCall(call_id, thread_id, context)
            result = await ProjectAgentTeam(office, request, call=call, findings=findings).run()
        return answer(result, usage=usage_of(office, call))

    run_team.__doc__ = DESCRIPTION.format(roles=", ".join(role.name for role in office.roles))
    # Members continue from their own checkpoints, and repeated effects are checked for their own tools.
    return tool_of(RUN_TEAM, TeamArguments, is_safe_to_repeat=True)(run_team)


def answer(result: TeamResult, *, usage: dict[str, int]) -> ToolMessage:
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


def usage_of(office: TeamServices, call: TeamCall) -> dict[str, int]:
    """Return the tokens used by all tasks of a team."""
    prefix = f"{call.team_id}{BETWEEN}"
    parts = [
        task.token_usage
        for task in office.executor.list(call.context.run_id)
        if task.task_id.startswith(prefix)
    ]
    return {name: sum(part.get(name, 0) for part in parts) for name in sorted({n for p in parts for n in p})}


def team_thread(thread_id: str, call_id: str, messages: Sequence[AnyMessage]) -> str:
    """Return the prefix of a team's checkpoint threads: the same after a restart, different per call."""
    asked_in = next((message.id or "" for message in reversed(messages) if _has_call(message, call_id)), "")
    return f"{thread_id}/{call_id}-{hashlib.sha256(asked_in.encode()).hexdigest()[:8]}"


def _has_call(message: AnyMessage, call_id: str) -> bool:
    return isinstance(message, AIMessage) and any(call["id"] == call_id for call in message.tool_calls)
