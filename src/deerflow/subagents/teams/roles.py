"""The roles of teams: the built-in ones, those from the settings, and the registry that plans refer to."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from deerflow.agents.prompts import CITATIONS, WORKING_DIRECTORY, join_parts
from deerflow.config.agents import SubagentsSettings, TeamRoleSettings, TeamsSettings, TeamStage
from deerflow.errors import NotFoundError
from deerflow.subagents.config import SubagentConfig
from deerflow.subagents.registry import configured, custom_subagent, overridden

APPROVER = "human_approver"
NEVER_FOR_MEMBERS = ("task", "ask_clarification", "present_files", "run_team")
_READING = ("ls", "read_file", "glob", "grep", "web_search", "web_fetch", "share_finding", "team_findings")

RULES = join_parts(
    [
        """\
<team_rules>
- You are one member of a team. Do your step fully and nothing beside it; nobody can answer questions.
- The brief has all you need. Look before you conclude: open the documents, search, compute, check.
- Whatever others may build on, share at once with share_finding as subject, predicate and object: "Acme",
  "revenue 2025", "4.2 M EUR". Use the names that the findings already have.
- Look at team_findings before you state a number or a name that somebody else may have found.
- When you and a finding disagree, say so with your evidence; do not smooth it over.
</team_rules>""",
        WORKING_DIRECTORY,
        CITATIONS,
        """\
<output_format>
Your last message is your report: the result first, then the evidence with sources, then paths of files you
wrote, then what is open or uncertain. Write in the language of the brief.
</output_format>""",
    ]
)


@dataclass(frozen=True, slots=True)
class Role:
    """A role in a team; a role without `config` is a person, who approves."""

    name: str
    description: str
    topics: tuple[str, ...] = ()
    """Words of a goal that call for this role when no model makes the plan."""
    stage: TeamStage = "work"
    config: SubagentConfig | None = None

    @property
    def is_person(self) -> bool:
        return self.config is None


class RoleRegistry:
    """The roles that plans may name."""

    def __init__(self, teams: TeamsSettings, subagents: SubagentsSettings) -> None:
        roles = {role.name: _with_settings(role, subagents) for role in BUILTIN_ROLES}
        roles |= {name: _custom(name, custom, subagents) for name, custom in teams.roles.items()}
        self._roles: Mapping[str, Role] = roles

    def __iter__(self) -> Iterator[Role]:
        return iter(self._roles.values())

    def get(self, name: str) -> Role:
        """Return the role called `name`; case, hyphens and spaces do not matter."""
        wanted = _normalized(name)
        found = next((role for role in self if _normalized(role.name) == wanted), None)
        if found is None:
            raise NotFoundError("role", name, known=self._roles)
        return found

    def among(self, names: Sequence[str]) -> list[Role]:
        """Return the roles with these names, each once; all roles when none is named."""
        return list(dict.fromkeys(map(self.get, names))) if names else list(self)


def _normalized(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def _with_settings(role: Role, settings: SubagentsSettings) -> Role:
    if role.config is None:
        return role
    return replace(role, config=overridden(configured(role.config, settings), settings))


def _custom(name: str, custom: TeamRoleSettings, settings: SubagentsSettings) -> Role:
    config = replace(
        custom_subagent(name, custom, settings),
        system_prompt=f"{custom.system_prompt.strip()}\n\n{RULES}",
        tools=None if custom.tools is None else (*custom.tools, "share_finding", "team_findings"),
        disallowed_tools=(*NEVER_FOR_MEMBERS, *(custom.disallowed_tools or ())),
        needs_shell=False,
    )
    return Role(name, custom.description, custom.topics, custom.stage, config)


def _builtin(
    name: str,
    description: str,
    prompt: str,
    *,
    topics: str,
    stage: TeamStage = "work",
    tools: tuple[str, ...] | None = None,
    max_turns: int = 60,
) -> Role:
    config = SubagentConfig(
        name,
        description,
        f"{prompt}\n\n{RULES}",
        tools=tools,
        disallowed_tools=NEVER_FOR_MEMBERS,
        max_turns=max_turns,
    )
    return Role(name, description, tuple(topics.split()), stage, config)


BUILTIN_ROLES = (
    _builtin(
        "financial_analyst",
        "Reads statements and figures, computes ratios and trends, judges value and risk.",
        """\
<role>
You are a financial analyst. Work from figures, with currency, period and source beside each. Compute
instead of estimating, show the formula, and reconcile figures that differ. Separate facts, assumptions and
judgement.
</role>""",
        topics="financ revenue profit budget cost price invest cash valuation"
        " 财务 营收 利润 预算 成本 价格 投资 估值",
    ),
    _builtin(
        "market_researcher",
        "Finds out about markets, competitors, customers, products and trends.",
        """\
<role>
You are a market researcher. Prefer primary and recent sources, give the date of each figure, and look for
what contradicts the first impression. Compare like with like; say how big the evidence behind a claim is.
</role>""",
        topics="market compet customer trend industry compare research product"
        " 市场 竞争 竞品 客户 趋势 行业 对比 调研 产品",
    ),
    _builtin(
        "document_review",
        "Reads documents closely: what they say, leave out, contradict, and where.",
        """\
<role>
You are a document reviewer. Read the named documents in full. Quote what matters with file and line or
section, list obligations, dates, amounts and parties, and name gaps, contradictions and unclear terms.
</role>""",
        topics="document contract report review paper policy summar file read"
        " 文档 合同 报告 审阅 论文 政策 总结 文件",
        tools=_READING,
    ),
    _builtin(
        "code_assistant",
        "Reads, writes, runs and tests code.",
        """\
<role>
You are a software engineer. Read the code before you change it, make the smallest change that does the job,
run it and its tests, and report what you ran and what it printed.
</role>""",
        topics="code program script bug test api software implement function"
        " 代码 编程 程序 脚本 测试 接口 软件 函数",
        max_turns=100,
    ),
    _builtin(
        "data_processor",
        "Cleans, joins, converts and computes data, and checks its quality.",
        """\
<role>
You are a data processor. Look at the data's shape first, state every cleaning rule, keep the raw files as
they are, write results to new files, and report counts of rows in, out and dropped, with a check of the
totals.
</role>""",
        topics="data csv table dataset spreadsheet statistic clean convert column 数据 表格 统计 清洗 转换",
    ),
    _builtin(
        "compliance_checker",
        "Checks the others' work against rules, law, policy and the constraints of the brief.",
        """\
<role>
You are a compliance checker. Go through the constraints and rules one by one; for each give passed, failed
or not verifiable with the evidence. Check the reports of the steps before yours, including their sources,
personal data and claims without evidence. End with a verdict and the changes that are needed.
</role>""",
        topics="compliance legal law regulat gdpr privacy policy audit licen 合规 法律 法规 隐私 审计 许可",
        stage="check",
        tools=_READING,
    ),
    Role(
        APPROVER,
        "A person who decides whether the work so far is right; the team waits.",
        stage="approve",
    ),
)
