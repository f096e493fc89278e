"""One memory becomes the next."""

import pytest

from deerflow.errors import ConflictError, NotFoundError
from deerflow.memory.base import Fact, Memory, MemorySection, clean, memory_of
from deerflow.memory.changes import MemoryUpdate, apply_update, with_changed_fact, with_fact, without_fact

TEA = Fact("1", "Likes tea.", confidence=0.8)
CAKE = Fact("2", "Likes cake.", confidence=0.7)
BOTH = Memory(facts=(TEA, CAKE))


def contents(memory: Memory) -> list[str]:
    return [fact.content for fact in memory.facts]


def test_a_fact_is_added_changed_and_removed() -> None:
    more = with_fact(BOTH, Fact("3", "Has a dog."), max_facts=10)
    changed = with_changed_fact(more, Fact("3", "Has a cat."))
    less = without_fact(changed, "1")

    assert contents(changed) == ["Likes tea.", "Likes cake.", "Has a cat."]
    assert contents(less) == ["Likes cake.", "Has a cat."]


@pytest.mark.parametrize("content", ["Likes tea.", "likes  TEA", "Likes... tea!"])
def test_a_fact_in_the_same_words_is_refused(content: str) -> None:
    with pytest.raises(ConflictError, match="remembered already, as 1"):
        with_fact(BOTH, Fact("3", content), max_facts=10)
    with pytest.raises(ConflictError):
        with_changed_fact(BOTH, Fact("2", content))


def test_a_full_memory_refuses_what_a_person_adds_and_says_what_to_do() -> None:
    with pytest.raises(ConflictError, match="max_facts"):
        with_fact(BOTH, Fact("3", "Has a dog."), max_facts=2)


def test_an_unknown_fact_is_not_found() -> None:
    with pytest.raises(NotFoundError):
        without_fact(BOTH, "9")
    with pytest.raises(NotFoundError):
        with_changed_fact(BOTH, Fact("9", "x"))


def test_a_lesson_adds_changes_removes_and_rewrites() -> None:
    update = MemoryUpdate(
        new=(Fact("3", "Has a dog."),),
        changed=(Fact("2", "Bakes cake."), Fact("9", "Of nobody.")),
        removed=frozenset({"1", "8"}),
        sections=(("workContext", MemorySection("Bakes.", "now")),),
    )

    memory = apply_update(BOTH, update, max_facts=10)

    assert contents(memory) == ["Bakes cake.", "Has a dog."]
    assert memory.section("workContext").summary == "Bakes."


def test_what_is_learnt_twice_is_known_once_and_more_surely() -> None:
    memory = apply_update(BOTH, MemoryUpdate(new=(Fact("3", "likes tea", confidence=0.95),)), max_facts=10)

    assert [(fact.id, fact.confidence) for fact in memory.facts] == [("1", 0.95), ("2", 0.7)]


def test_a_change_that_makes_two_facts_alike_leaves_one() -> None:
    memory = apply_update(BOTH, MemoryUpdate(changed=(Fact("2", "Likes tea"),)), max_facts=10)

    assert [fact.id for fact in memory.facts] == ["1"]


def test_beyond_the_limit_the_least_certain_go_and_corrections_stay() -> None:
    unsure = Fact("3", "Never say dear.", "correction", 0.1)

    memory = apply_update(
        BOTH,
        MemoryUpdate(new=(unsure, Fact("4", "Has a dog.", confidence=0.75))),
        max_facts=3,
        keeps=["correction"],
    )

    assert [fact.id for fact in memory.facts] == ["1", "3", "4"]


def test_a_memory_survives_being_written_and_read() -> None:
    memory = Memory({"topOfMind": MemorySection("Tea.", "t")}, (TEA,), 3, "now", "then")

    assert memory_of({**memory.to_dict(), "clearedAt": memory.cleared_at}) == memory


@pytest.mark.parametrize(
    "data",
    [{}, {"facts": None, "user": []}, {"facts": [None, 1, {"id": "1"}], "user": {"workContext": "x"}}],
)
def test_what_is_no_memory_is_an_empty_one(data: dict[str, object]) -> None:
    assert memory_of(data).is_empty


def test_texts_become_one_short_line() -> None:
    assert clean(" a\n\tb\x00\u202e c\ud800 ", 100) == "a b c"
    assert clean("x" * 10, 4) == "xxxx"
