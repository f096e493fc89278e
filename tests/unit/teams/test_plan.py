"""Plans: what a model may write, what is refused, and the plan by fixed rules."""

import json
from typing import Any

import pytest

from deerflow.config.agents import SubagentsSettings, TeamRoleSettings, TeamsSettings
from deerflow.errors import DeerFlowError, NotFoundError
from deerflow.subagents.teams.plan import TeamPlan, TeamStep, checked_plan, fallback_plan, read_plan
from deerflow.subagents.teams.roles import RoleRegistry

ROLES = RoleRegistry(TeamsSettings(), SubagentsSettings())


def step(name: str, *needs: str, role: str = "market_researcher") -> dict[str, Any]:
    return {"id": name, "role": role, "task": f"do {name}", "needs": list(needs)}


def read(value: Any, *, members: tuple[str, ...] = (), max_steps: int = 12) -> TeamPlan:
    text = value if isinstance(value, str) else json.dumps(value)
    return read_plan(text, ROLES, members=members, max_steps=max_steps)


def test_a_plan_is_read_from_between_other_words_and_in_other_spellings() -> None:
    plan = read(
        'Here it is:\n```json\n{"steps": [{"id": "1 Figures", "agent": "Financial Analyst", "prompt": "x"},'
        ' {"id": 2, "role": "compliance-checker", "task": "y", "depends_on": ["1 Figures"]}],'
        ' "aggregate": "one table", "mood": "good"}\n```'
    )

    assert [(each.id, each.role, each.needs) for each in plan.steps] == [
        ("1-figures", "financial_analyst", []),
        ("2", "compliance_checker", ["1-figures"]),
    ]
    assert plan.aggregate == "one table"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("no plan today", "has no JSON object"),
        ("{broken}", "not of the right form"),
        ({"steps": []}, "not of the right form"),
        ({"steps": "all"}, "not of the right form"),
        ({"steps": [{"id": "a", "role": "market_researcher"}]}, "not of the right form"),
        ({"steps": [step("a", role="wizard")]}, "role 'wizard' not found; there are: financial_analyst"),
        ({"steps": [step("a"), step("a")]}, "every step needs an id of its own"),
        ({"steps": [step("a", "b")]}, "step a needs b, which is no step"),
        ({"steps": [step("a", "b"), step("b", "a"), step("c")]}, "the steps a, b wait for each other"),
        ({"steps": [step("a", "a")]}, "the steps a wait for each other"),
        ({"steps": [step(str(n)) for n in range(13)]}, "the plan has 13 steps; teams.max_steps allows 12"),
        ({"steps": [step(str(n)) for n in range(5000)]}, "not of the right form"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(answer: Any, reason: str) -> None:
    with pytest.raises(DeerFlowError, match=reason):
        read(answer)


def test_only_members_take_part() -> None:
    with pytest.raises(
        DeerFlowError, match="step a: market_researcher is no member; there are: data_processor"
    ):
        read({"steps": [step("a")]}, members=("data_processor",))


@pytest.mark.parametrize(
    ("goal", "chosen"),
    [
        ("Compare the market of cloud platforms by revenue", ["financial_analyst", "market_researcher"]),
        ("Clean this CSV", ["data_processor"]),
        ("Audit our privacy notices", ["market_researcher", "compliance_checker"]),
        ("请帮我看看", ["market_researcher"]),
        ("请审阅这份合同的法律风险", ["document_review", "compliance_checker"]),
        ("给API写脚本并做数据统计", ["code_assistant", "data_processor"]),
    ],
)
def test_without_a_model_the_words_of_the_goal_choose(goal: str, chosen: list[str]) -> None:
    plan = fallback_plan(goal, list(ROLES), named=False, has_documents=False)

    assert [each.role for each in plan.steps] == chosen
    assert checked_plan(plan, ROLES, max_steps=12) == plan


def test_custom_topics_may_be_written_in_any_way() -> None:
    lawyer = TeamRoleSettings(description="law", system_prompt="You know the law.", topics=("HIPAA",))
    roles = RoleRegistry(TeamsSettings(roles={"lawyer": lawyer}), SubagentsSettings())

    plan = fallback_plan("Is this hipaa-proof?", list(roles), named=False, has_documents=False)

    assert [each.role for each in plan.steps] == ["lawyer"]


@pytest.mark.parametrize("ids", [("步骤①", "步骤②"), ("step²", "½"), (1.5, 2.5)])
def test_steps_may_be_numbered_in_any_way(ids: tuple[Any, Any]) -> None:
    first, second = ids

    plan = read({"steps": [step(first), step(second, first)]})

    assert plan.steps[1].needs == [plan.steps[0].id]


def test_steps_and_roles_may_have_chinese_names() -> None:
    lawyer = TeamRoleSettings(description="法律", system_prompt="你懂法律。")
    roles = RoleRegistry(TeamsSettings(roles={"律师": lawyer}), SubagentsSettings())
    steps = [step("市场 分析"), step("结论", "市场 分析", role="律师")]

    planned = read_plan(json.dumps({"steps": steps}), roles, members=(), max_steps=12)
    by_rules = fallback_plan("看合同", roles.among(["律师"]), named=True, has_documents=False)

    assert [(each.id, each.needs) for each in planned.steps] == [("市场-分析", []), ("结论", ["市场-分析"])]
    assert [(each.id, each.role) for each in by_rules.steps] == [("律师", "律师")]


def test_without_a_fitting_word_documents_are_reviewed() -> None:
    plan = fallback_plan("???", list(ROLES), named=False, has_documents=True)

    assert [each.role for each in plan.steps] == ["document_review"]


def test_named_members_all_take_part_and_checks_come_after_work_and_people_last() -> None:
    roles = ROLES.among(["human_approver", "compliance_checker", "code_assistant", "data_processor"])

    plan = fallback_plan("go", roles, named=True, has_documents=False)

    assert {each.id: each.needs for each in plan.steps} == {
        "code_assistant": [],
        "data_processor": [],
        "compliance_checker": ["code_assistant", "data_processor"],
        "human_approver": ["code_assistant", "data_processor", "compliance_checker"],
    }


def test_custom_roles_are_added_or_replace_built_in_ones() -> None:
    lawyer = TeamRoleSettings(
        description="law", system_prompt="You know the law.", tools=("read_file",), topics=("contract",)
    )
    researcher = TeamRoleSettings(description="mine", system_prompt="Mine.", max_turns=7)
    settings = TeamsSettings(roles={"lawyer": lawyer, "market_researcher": researcher})
    roles = RoleRegistry(settings, SubagentsSettings(timeout_seconds=5))

    own, replaced = roles.get("Lawyer").config, roles.get("market-researcher").config

    assert own is not None
    assert replaced is not None
    assert own.tools == ("read_file", "share_finding", "team_findings")
    assert own.system_prompt.startswith("You know the law.")
    assert (own.timeout_seconds, replaced.max_turns) == (5, 7)
    assert "run_team" in own.disallowed_tools
    with pytest.raises(NotFoundError, match="lawyer"):
        roles.get("nobody")


def test_a_step_takes_numbers_and_no_needs_at_all() -> None:
    assert TeamStep.model_validate({"id": 7, "role": "r", "task": "t", "needs": None}).needs == []
