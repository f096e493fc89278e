"""Join the reports of a team into one answer, in a task of the editor."""

from deerflow.subagents.config import SubagentConfig, SubagentStatus
from deerflow.subagents.teams.result import ended_early
from deerflow.subagents.teams.team_services import TeamCall, TeamServices

EDITOR_PROMPT = """\
<role>
You make one answer of the reports of a team. It reads as if one person had written it.
</role>
<way_of_working>
- Answer the goal first; then what supports it. Follow <how> where it is given.
- Settle every point in <contradictions>, and any that you notice, by the better evidence: say which statement
  you take and why. What the evidence cannot settle, name as open; never state both as true.
- Use one name for one thing, as <terms> says, throughout.
- Say each thing once. Keep every source and every path of a file. Add nothing that no report supports.
- Say which steps are not done and what that leaves open.
- Write in the language of the goal.
</way_of_working>"""


async def edit(office: TeamServices, call: TeamCall, prompt: str) -> tuple[str, str]:
    """Return the joined answer and a note on its problems; the answer is empty when there is none."""
    if office.works_by_rules(call):
        return "", ""
    config = SubagentConfig(
        name="team_editor",
        description="joins a team's results",
        system_prompt=EDITOR_PROMPT,
        tools=(),
        skills=(),
        max_turns=2,
        timeout_seconds=office.settings.planning_seconds,
        thinking=call.context.settings.subagents.thinking,
    )
    result = await office.execute(call, "join", config, description="Join the results", prompt=prompt)
    early = ended_early(result)
    if result.status is SubagentStatus.COMPLETED and result.result and early != "empty_answer":
        return result.result, f"The joined answer ended early: {early}" if early else ""
    return "", f"The results stand side by side: {result.error or 'the editor said nothing'}"
