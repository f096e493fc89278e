import pytest

from deerflow.models.offline.words import language_of, stem, terms


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("caches", "caching"),
        ("cached", "cache"),
        ("policies", "policy"),
        ("reliable", "reliability"),
        ("consistent", "consistency"),
        ("running", "runs"),
        ("costs", "cost"),
        ("classes", "class"),
    ],
)
def test_forms_of_a_word_meet(one: str, other: str) -> None:
    assert stem(one) == stem(other)


@pytest.mark.parametrize(("one", "other"), [("speed", "spec"), ("bus", "bu"), ("analysis", "analyse")])
def test_different_words_stay_apart(one: str, other: str) -> None:
    assert stem(one) != stem(other)


def test_stop_words_and_punctuation_carry_no_terms() -> None:
    assert terms("What is the cost of it?!") == ["cost"]


def test_chinese_is_read_as_pairs_of_characters_between_particles() -> None:
    assert terms("缓存的成本") == ["缓存", "成本"]
    assert terms("数据库") == ["数据", "据库"]


def test_mixed_text_keeps_both_scripts_apart() -> None:
    assert terms("用Redis做缓存 v2") == ["用", stem("redis"), "做缓", "缓存", "v", "2"]


def test_names_in_code_are_found_whole_and_by_their_parts() -> None:
    assert {stem("maxretries"), "max", stem("retries")} <= set(terms("maxRetries"))
    assert stem("postgresql") in terms("PostgreSQL")
    assert terms("snake_case_name") == [stem("snake"), stem("case"), stem("name")]


def test_odd_input_is_read_without_complaint() -> None:
    assert terms("") == []
    assert terms("\x00\ud7ff🦌 —") == []
    assert terms("ünïcode Привет") == ["ünïcode", "привет"]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Compare these notes", "en"),
        ("比较这些笔记", "zh"),
        ("总结 README.md 的内容", "zh"),
        ("これは何ですか", "en"),
        ("", "en"),
    ],
)
def test_the_answer_is_in_the_language_of_the_question(text: str, language: str) -> None:
    assert language_of(text) == language
