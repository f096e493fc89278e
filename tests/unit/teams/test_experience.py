"""What earlier teams learned comes back for a goal that is alike, in every language."""

import pytest
from langgraph.store.memory import InMemoryStore

from deerflow.subagents.teams.experience import Experience
from deerflow.subagents.teams.findings import FindingsGraph


@pytest.mark.parametrize(
    ("goal", "alike", "other"),
    [
        ("Shall we buy Acme?", "Shall we sell Acme?", "Bake bread"),
        ("调研电动车市场", "分析中国电动车行业趋势", "写一首关于秋天的诗"),
        ("電気自動車の市場", "電気自動車の価格", "パンを焼く"),
    ],
)
async def test_a_goal_is_known_again_by_its_words(goal: str, alike: str, other: str) -> None:
    experience = Experience(InMemoryStore())
    await experience.save(
        "t1", user_id="ann", project_id="p", goal=goal, outcome="done", findings=FindingsGraph()
    )

    found = await experience.recall(user_id="ann", project_id="p", goal=alike)

    assert found == [f"An earlier team was asked: {goal} It came to: done"]
    assert await experience.recall(user_id="ann", project_id="p", goal=other) == []
    assert await experience.recall(user_id="bob", project_id="p", goal=goal) == []
