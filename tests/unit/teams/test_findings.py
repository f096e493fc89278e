"""The shared graph: what is the same, what contradicts, and how names are kept alike."""

import pytest
from langchain_core.messages import AIMessage
from langgraph.store.memory import InMemoryStore

from deerflow.subagents.teams.findings import MAX_FINDINGS, FindingsGraph, TeamExperience, TeamFinding


def graph(*triples: tuple[str, str, str, str]) -> FindingsGraph:
    made = FindingsGraph()
    for triple in triples:
        made.add(TeamFinding(*triple))
    return made


def test_the_same_finding_twice_is_one() -> None:
    made = graph(("Acme", "revenue", "5 M", "a"))

    assert not made.add(TeamFinding("ACME", "Revenue", "5  m", "a"))
    assert made.add(TeamFinding("Acme", "revenue", "5 M", "b"))
    assert len(made) == 2


def test_members_who_differ_contradict_each_other() -> None:
    made = graph(
        ("Acme", "revenue", "5 M", "a"),
        ("acme", "Revenue", "-5 M", "b"),
        ("Acme", "products", "rockets", "a"),
        ("Acme", "products", "anvils", "a"),
        ("Acme", "seat", "Oslo", "a"),
        ("Acme", "seat", "oslo", "b"),
    )

    assert [str(each) for each in made.contradictions()] == ["Acme — revenue: 5 M (by a); -5 M (by b)"]


def test_the_most_used_spelling_is_the_term_to_use() -> None:
    made = graph(
        ("AWS Lambda", "price", "1", "a"),
        ("aws-lambda", "limit", "2", "b"),
        ("AWS Lambda", "region", "3", "b"),
    )

    assert made.terms() == {"AWS Lambda": ["aws-lambda"]}


def test_findings_come_back_from_a_members_messages() -> None:
    shared = {"subject": "Acme", "predicate": "seat", "object": "Oslo", "source": "a.md"}
    calls = [
        {"name": "share_finding", "args": shared, "id": "1"},
        {"name": "share_finding", "args": {"subject": "half"}, "id": "2"},
        {"name": "bash", "args": shared, "id": "3"},
    ]
    made = FindingsGraph()

    made.add_from_messages("a", [AIMessage("", tool_calls=calls), AIMessage("done")])
    made.add_from_messages("a", [AIMessage("", tool_calls=calls)])

    assert made.render() == "- Acme — seat: Oslo (by a) [a.md]"


def test_a_flood_of_findings_is_bounded_in_number_and_size() -> None:
    made = FindingsGraph()
    words = {"subject": "s" * 9999, "predicate": "p", "object": "o"}
    calls = [{"name": "share_finding", "args": words, "id": "1"}]
    made.add_from_messages("a", [AIMessage("", tool_calls=calls)])

    for number in range(2 * MAX_FINDINGS):
        made.add(TeamFinding(f"s{number}", "p", "o", "a"))

    assert len(made) == MAX_FINDINGS
    assert len(made.about()[0].subject) == 500
    assert "older ones left out" in made.render()
    assert len(made.about("s77")) == 1


@pytest.mark.parametrize(
    ("goal", "alike", "other"),
    [
        ("Shall we buy Acme?", "Shall we sell Acme?", "Bake bread"),
        ("调研电动车市场", "分析中国电动车行业趋势", "写一首关于秋天的诗"),
        ("電気自動車の市場", "電気自動車の価格", "パンを焼く"),
    ],
)
async def test_a_goal_is_known_again_by_its_words(goal: str, alike: str, other: str) -> None:
    experience = TeamExperience(InMemoryStore())
    await experience.save(
        "t1", user_id="ann", project_id="p", goal=goal, outcome="done", findings=FindingsGraph()
    )

    found = await experience.recall(user_id="ann", project_id="p", goal=alike)

    assert found == [f"An earlier team was asked: {goal} It came to: done"]
    assert await experience.recall(user_id="ann", project_id="p", goal=other) == []
    assert await experience.recall(user_id="bob", project_id="p", goal=goal) == []
