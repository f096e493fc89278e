"""Facts are found by their words."""

import pytest

from deerflow.memory.base import Fact
from deerflow.memory.searching import best_facts

FACTS = (
    Fact("1", "Likes green tea and dogs.", "preference", 0.7),
    Fact("2", "Has a dog called Rex.", "context", 0.9),
    Fact("3", "住在上海，喜欢喝茶。", "context", 0.8),
)


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("tea", ["1"]),
        ("the DOG Rex", ["2", "1"]),
        ("上海", ["3"]),
        ("喝茶吗", ["3"]),
        ("nothing here", []),
        ("", ["2", "3", "1"]),
        ("!?", ["2", "3", "1"]),
    ],
)
def test_the_best_come_first(query: str, ids: list[str]) -> None:
    assert [fact.id for fact in best_facts(FACTS, query)] == ids


def test_a_category_and_a_limit_narrow_it_down() -> None:
    assert [fact.id for fact in best_facts(FACTS, "", category=" Context ", limit=1)] == ["2"]
