import time

import pytest

from deerflow.models.offline.question import coverage, key_terms, query_for, understand


@pytest.mark.parametrize(
    ("text", "intent", "aspects"),
    [
        ("Compare the approaches in these notes", "compare", ()),
        (
            "Compare the notes in terms of cost, latency and reliability.",
            "compare",
            ("Cost", "Latency", "Reliability"),
        ),
        ("Compare these queues by cost and risk", "compare", ("Cost", "Risk")),
        ("Summarise the notes by Ann", "summarise", ()),
        ("Explain the cost, speed and safety of the approaches", "ask", ("Cost", "Speed", "Safety")),
        (
            "What are the risks and who owns the migration?",
            "ask",
            ("What are the risks", "who owns the migration"),
        ),
        ("Summarise these files", "summarise", ()),
        ("比较这些笔记的成本、延迟和可靠性", "compare", ("成本", "延迟", "可靠性")),
        ("从成本、性能和安全方面对比这些方案", "compare", ("成本", "性能", "安全")),
        ("谁负责迁移？预算是多少？", "ask", ("谁负责迁移", "预算是多少")),
        ("总结这些文件", "summarise", ()),
        ("What is this document about?", "summarise", ()),
        ("What do they say about locks, queues and retries?", "ask", ("Locks", "Queues", "Retries")),
        ("这些文档对检查点和性能有什么说明？", "ask", ("检查点", "性能")),
        ("", "ask", ()),
    ],
)
def test_a_question_shows_its_intent_and_aspects(text: str, intent: str, aspects: tuple[str, ...]) -> None:
    question = understand(text)

    assert (question.intent, question.aspects) == (intent, aspects)


def test_a_comparison_without_aspects_looks_at_the_usual_ones() -> None:
    assert "Cost" in understand("Compare these notes").plan
    assert "成本" in understand("比较这些笔记").plan


def test_a_question_without_aspects_looks_at_the_main_points() -> None:
    assert understand("Summarise these files").plan == ("Main points",)


def test_words_that_only_give_orders_are_no_key_terms() -> None:
    assert (
        key_terms("Please compare and summarise the uploaded files /mnt/user-data/uploads/a.md and notes.md")
        == []
    )


def test_other_words_for_a_facet_are_looked_for_in_both_languages() -> None:
    assert {"expensiv", "便宜", "成本"} <= set(query_for("Cost", ""))
    assert {"cost", "expensiv"} <= set(query_for("成本", ""))


def test_having_all_words_of_an_aspect_counts_more_than_having_one() -> None:
    assert coverage("shard cost", {"shard", "cost"}) > coverage("shard cost", {"cost"})


def test_hostile_questions_are_read_in_bounded_time() -> None:
    for text in ("a, " * 5000 + "and b", "、" * 5000 + "和", "compare on " * 3000, "?" * 10000, "的" * 10000):
        assert len(understand(text).aspects) <= 8


def test_a_list_of_nothing_names_no_more_than_itself() -> None:
    assert understand("和和和、与及").aspects == ("和和和、与及",)


@pytest.mark.parametrize("item", ["alpha beta, ", "甲乙、", "和、"])
def test_a_pasted_list_that_never_ends_is_read_in_bounded_time(item: str) -> None:
    started = time.process_time()

    understand(f"Compare {item * 4000}")

    assert time.process_time() - started < 5
