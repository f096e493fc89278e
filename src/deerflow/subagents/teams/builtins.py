"""The built-in roles of teams, and the rules in every member's system prompt."""

from dataclasses import dataclass

from deerflow.agents.prompts import CITATIONS, WORKING_DIRECTORY, join_parts
from deerflow.config.teams import TeamStage

APPROVER = "human_approver"

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
class BuiltinRole:
    """The definition of a built-in role."""

    name: str
    description: str
    prompt: str
    topics: tuple[str, ...]
    stage: TeamStage = "work"
    tools: tuple[str, ...] | None = None
    max_turns: int = 60


_READING = ("ls", "read_file", "glob", "grep", "web_search", "web_fetch", "share_finding", "team_findings")


def _topics(*languages: str) -> tuple[str, ...]:
    """Return the keywords of a role, from one string of words per language."""
    return tuple(word for words in languages for word in words.split())


BUILTIN_ROLES = (
    BuiltinRole(
        "financial_analyst",
        "Reads statements and figures, computes ratios and trends, judges value and risk.",
        """\
<role>
You are a financial analyst. Work from figures, with currency, period and source beside each. Compute
instead of estimating, show the formula, and reconcile figures that differ. Separate facts, assumptions and
judgement.
</role>""",
        topics=_topics(
            "financ revenue profit budget cost price invest cash valuation",
            "财务 营收 利润 预算 成本 价格 投资 估值",
        ),
    ),
    BuiltinRole(
        "market_researcher",
        "Finds out about markets, competitors, customers, products and trends.",
        """\
<role>
You are a market researcher. Prefer primary and recent sources, give the date of each figure, and look for
what contradicts the first impression. Compare like with like; say how big the evidence behind a claim is.
</role>""",
        topics=_topics(
            "market compet customer trend industry compare research product",
            "市场 竞争 竞品 客户 趋势 行业 对比 调研 产品",
        ),
    ),
    BuiltinRole(
        "document_review",
        "Reads documents closely: what they say, leave out, contradict, and where.",
        """\
<role>
You are a document reviewer. Read the named documents in full. Quote what matters with file and line or
section, list obligations, dates, amounts and parties, and name gaps, contradictions and unclear terms.
</role>""",
        topics=_topics(
            "document contract report review paper policy summar file read",
            "文档 合同 报告 审阅 论文 政策 总结 文件",
        ),
        tools=_READING,
    ),
    BuiltinRole(
        "code_assistant",
        "Reads, writes, runs and tests code.",
        """\
<role>
You are a software engineer. Read the code before you change it, make the smallest change that does the job,
run it and its tests, and report what you ran and what it printed.
</role>""",
        topics=_topics(
            "code program script bug test api software implement function",
            "代码 编程 程序 脚本 测试 接口 软件 函数",
        ),
        max_turns=100,
    ),
    BuiltinRole(
        "data_processor",
        "Cleans, joins, converts and computes data, and checks its quality.",
        """\
<role>
You are a data processor. Look at the data's shape first, state every cleaning rule, keep the raw files as
they are, write results to new files, and report counts of rows in, out and dropped, with a check of the
totals.
</role>""",
        topics=_topics(
            "data csv table dataset spreadsheet statistic clean convert column",
            "数据 表格 统计 清洗 转换",
        ),
    ),
    BuiltinRole(
        "compliance_checker",
        "Checks the others' work against rules, law, policy and the constraints of the brief.",
        """\
<role>
You are a compliance checker. Go through the constraints and rules one by one; for each give passed, failed
or not verifiable with the evidence. Check the reports of the steps before yours, including their sources,
personal data and claims without evidence. End with a verdict and the changes that are needed.
</role>""",
        topics=_topics(
            "compliance legal law regulat gdpr privacy policy audit licen",
            "合规 法律 法规 隐私 审计 许可",
        ),
        stage="check",
        tools=_READING,
    ),
)
