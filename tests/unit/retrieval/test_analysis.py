"""The terms of texts in English, Chinese and code."""

import pytest

from deerflow.retrieval import query_terms, terms, words


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("policies", "policy"),
        ("running", "runs"),
        ("compute", "computed"),
        ("Databases", "database"),
        ("caching", "cached"),
        ("classes", "class"),
        ("user's", "users"),
        ("ＡＢＣ", "abc"),
    ],
)
def test_inflections_of_a_word_are_one_term(one: str, other: str) -> None:
    assert terms(one) == terms(other) != []


@pytest.mark.parametrize(("one", "other"), [("string", "str"), ("sing", "s"), ("bus", "bu"), ("red", "r")])
def test_different_words_stay_different(one: str, other: str) -> None:
    assert terms(one) != terms(other)


def test_chinese_becomes_pairs_of_characters_without_particles() -> None:
    assert terms("我的数据库是PostgreSQL") == ["数据", "据库", "postgresql", "postgr", "sql"]
    assert set(terms("数据库的版本")) >= set(terms("数据库"))


def test_an_identifier_is_found_whole_and_by_its_parts() -> None:
    assert terms("getUserName") == ["getusernam", "get", "user", "nam"]
    assert set(terms("MAX_FACT_CHARS")) >= set(terms("fact chars"))
    assert terms("HTTPServer")[1:] == ["http", "server"]


def test_versions_and_language_names_are_kept_whole() -> None:
    assert terms("Python 3.11.7 and C++ on 2026-11-18") == ["python", "3.11.7", "c++", "2026-11-18"]


def test_words_without_meaning_of_their_own_are_left_out() -> None:
    assert terms("What is the of and don't I'm? 的了吗") == []


def test_a_query_has_each_term_once() -> None:
    assert query_terms("cats and Cats") == ["cat"]


def test_words_are_neither_stemmed_nor_left_out() -> None:
    assert words("The Cats sat_down 你好吗") == ["the", "cats", "sat", "down", "你好", "好吗"]


def test_a_long_text_is_analysed_in_linear_time() -> None:
    text = "a-" * 200_000 + "数据" * 100_000

    assert max(map(len, terms(text))) <= 64
