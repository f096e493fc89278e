"""Ranking by words and by meaning."""

import subprocess
import sys
import time
from collections.abc import Sequence

import pytest
from support.loop_watch import LoopWatch

from deerflow.retrieval import (
    EmbeddingModel,
    Ranker,
    StaticEmbeddings,
    default_embeddings,
    rank,
    rank_in_thread,
)

TEXTS = [
    "Kite has no compaction at all.",
    "Owl compacts its log every night.",
    "My daughter has her birthday in June.",
    "用户喜欢喝咖啡。",
    "数据库的版本是十六。",
]


@pytest.fixture(scope="module")
def model() -> EmbeddingModel:
    found = default_embeddings()
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("How does Kite handle compaction?", 0),
        ("which one is compacting", 1),
        ("数据库版本", 4),
        ("喝咖啡", 3),
    ],
)
def test_words_find_a_text_whatever_their_form(query: str, expected: int) -> None:
    hits = rank(query, TEXTS)

    assert hits[0].index == expected
    assert 0 < hits[0].score <= 1


@pytest.mark.parametrize(
    ("query", "expected"),
    [("When was my child born?", 2), ("the user likes to drink coffee", 3), ("mein Lieblingskaffee", 3)],
)
def test_meaning_finds_a_text_without_shared_words(model: EmbeddingModel, query: str, expected: int) -> None:
    assert rank(query, TEXTS, embeddings=model)[0].index == expected


def test_nothing_in_common_finds_nothing() -> None:
    assert rank("zebra", TEXTS) == []
    assert rank("", TEXTS) == []
    assert rank("kite", []) == []


def test_a_minimum_score_leaves_out_what_does_not_match(model: EmbeddingModel) -> None:
    hits = rank("Hello, how are you today?", TEXTS, embeddings=model, min_score=0.3)

    assert hits == []


def test_rare_words_count_more_than_frequent_ones() -> None:
    texts = ["the server is fast", "the server is slow", "the server is red", "the client is red herring"]

    assert rank("server herring", texts)[0].index == 3


def test_neighbours_lend_their_words() -> None:
    texts = ["I bought an espresso machine.", "It cost 400 dollars.", "My dog is old.", "He sleeps a lot."]

    alone = rank("What did the espresso machine cost?", texts)
    together = rank("What did the espresso machine cost?", texts, neighbours=1)

    assert {hit.index for hit in alone} == {0, 1}
    assert together[1].words > 2 * alone[1].words


def test_equal_texts_keep_their_order() -> None:
    assert [hit.index for hit in rank("red", ["red", "red", "blue", "red"], limit=2)] == [0, 1]


def test_vectors_have_length_one_and_do_not_depend_on_their_neighbours(model: EmbeddingModel) -> None:
    together = model.embed([*TEXTS, "…"])

    assert (abs((together**2).sum(axis=1) - [1, 1, 1, 1, 1, 0]) < 1e-5).all()
    assert (model.embed(TEXTS[:1])[0] == together[0]).all()


def test_without_the_package_there_is_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deerflow.retrieval.embeddings.STATIC_PACKAGE", "not-installed-here")

    assert StaticEmbeddings.installed() is None


def test_the_package_loads_neither_numpy_nor_weights() -> None:
    code = (
        "import sys, deerflow.retrieval as r; r.default_embeddings(); r.rank('a b', ['b c'])\n"
        "print('numpy' in sys.modules, 'lmm' in sys.modules)"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.split() == ["False", "False"]


class _CountingModel(EmbeddingModel):
    name = "counting"

    def __init__(self, model: EmbeddingModel) -> None:
        self._model = model
        self.embedded: list[str] = []

    def embed(self, texts: Sequence[str]):  # type: ignore[no-untyped-def]
        self.embedded += texts
        return self._model.embed(texts)


def test_a_ranker_embeds_its_texts_once(model: EmbeddingModel) -> None:
    counting = _CountingModel(model)
    ranker = Ranker(TEXTS, embeddings=counting)

    ranker.rank("one")
    ranker.rank("two")

    assert counting.embedded == [*TEXTS, "one", "two"]


async def test_ranking_many_texts_does_not_hold_the_loop(model: EmbeddingModel) -> None:
    texts = [f"{TEXTS[number % len(TEXTS)]} {number}" for number in range(5000)]

    async with LoopWatch(clock=time.thread_time):
        hits = await rank_in_thread("compaction 4000", texts, embeddings=model, limit=3)

    assert hits[0].index == 4000
