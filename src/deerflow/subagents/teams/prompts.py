"""Build the prompts of planner, members and editor: task, constraints, files, reports, findings, tools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deerflow.errors import SandboxError
from deerflow.sandbox import Sandbox
from deerflow.subagents.config import SubagentConfig
from deerflow.subagents.teams.findings import FindingsGraph
from deerflow.subagents.teams.plan import TeamPlan, TeamRequest, TeamStep
from deerflow.subagents.teams.roles import Role
from deerflow.tools.define import clip_middle

MAX_REPORT_CHARS = 12_000
MAX_REPORTS_CHARS = 60_000
MAX_FILES = 60
FOLDERS = ("/mnt/user-data/uploads", "/mnt/user-data/workspace")

PLANNER_PROMPT = """\
<role>
You plan the work of a team. Decide which roles the goal needs, what each of them has to do, which steps
need the result of others, and how the results become one answer. Every step's task says all that its member
must know.
</role>"""

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

PLAN_FORM = """\
Answer with one JSON object and nothing else:
{"steps": [{"id": "short-name", "role": "one of the roles", "task": "all that this member has to do",
"needs": ["ids of steps whose results it builds on"]}], "aggregate": "how the results become one answer"}
Steps that do not need each other run at the same time, so give `needs` only where it is true. Use as few
steps as the goal allows, at most %d. A checker needs the steps that it checks."""


@dataclass(frozen=True, slots=True)
class TeamPrompts:
    """The parts that the prompts of one team share."""

    request: TeamRequest
    files: Sequence[str] = ()
    experience: Sequence[str] = ()

    def for_planner(self, roles: Sequence[Role], max_steps: int) -> str:
        """Return the prompt that asks for a plan."""
        known = "\n".join(f"- {role.name}: {role.description}" for role in roles)
        return _joined(
            ("goal", self.request.goal),
            ("constraints", _lines(self.request.constraints)),
            ("project", self.request.project_info),
            ("documents", _lines(self.request.documents)),
            ("files", _lines(self.files)),
            ("experience", _lines(self.experience)),
            ("roles", known),
            ("form", PLAN_FORM % max_steps),
        )

    def for_member(
        self, step: TeamStep, config: SubagentConfig, reports: Mapping[str, str], findings: FindingsGraph
    ) -> str:
        """Return the prompt of one step, with the reports of the steps that it needs."""
        needed = {name: reports[name] for name in step.needs if name in reports}
        tools = ", ".join(config.tools) if config.tools is not None else "all that you have"
        parts = _joined(
            ("task", step.task),
            ("constraints", _lines(self.request.constraints)),
            ("project", self.request.project_info),
            ("experience", _lines(self.experience)),
            ("reports", _reports(needed)),
            ("findings", findings.render()),
            ("tools", tools),
        )
        return f"{self._question(step)}\n\n{parts}"

    def for_editor(self, plan: TeamPlan, reports: Mapping[str, str], findings: FindingsGraph) -> str:
        """Return the prompt that asks for one answer from all reports."""
        disputes = "\n".join(f"- {each}" for each in findings.contradictions())
        terms = "\n".join(f"- {term} (not: {', '.join(others)})" for term, others in findings.terms().items())
        return _joined(
            ("goal", self.request.goal),
            ("constraints", _lines(self.request.constraints)),
            ("how", plan.aggregate),
            ("reports", _reports(reports)),
            ("findings", findings.render()),
            ("contradictions", disputes),
            ("terms", terms),
        )

    def _question(self, step: TeamStep) -> str:
        """Return goal, task and files in the format that the offline model can parse."""
        files = self.request.documents or self.files
        lines = [f"Question: {_one_line(self.request.goal)}", f"Aspects: {_one_line(step.task)}"]
        return "\n".join([*lines, *(["Files:", *(f"- {path}" for path in files)] if files else [])])


async def files_of(sandbox: Sandbox) -> list[str]:
    """Return the paths of the thread's files, at most `MAX_FILES`."""
    found: list[str] = []
    for folder in FOLDERS:
        try:
            entries = await sandbox.list_dir(folder, max_depth=2)
        except SandboxError:
            continue
        found += [entry if entry.startswith("/") else f"{folder}/{entry}" for entry in entries]
    files = [each for each in found if not each.endswith("/")]
    return [*files[:MAX_FILES], *([f"({len(files) - MAX_FILES} more)"] if len(files) > MAX_FILES else [])]


def _one_line(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split()).replace(";", ",")


def _joined(*parts: tuple[str, str]) -> str:
    return "\n\n".join(f"<{name}>\n{text.strip()}\n</{name}>" for name, text in parts if text.strip())


def _lines(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _reports(reports: Mapping[str, str]) -> str:
    limit = min(MAX_REPORT_CHARS, MAX_REPORTS_CHARS // max(1, len(reports)))
    return "\n\n".join(f"## {name}\n{clip_middle(text, limit)}" for name, text in reports.items())
