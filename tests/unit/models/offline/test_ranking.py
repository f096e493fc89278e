import time

from deerflow.models.offline.ranking import Bm25, centrality, is_repeat
from deerflow.models.offline.words import terms


def scores(texts: list[str], query: str) -> list[float]:
    wanted = dict.fromkeys(terms(query), 1.0)
    return Bm25([terms(text) for text in texts], vocabulary=wanted).scores(wanted)


def test_a_text_without_the_words_scores_nothing() -> None:
    without, with_it = scores(["cats sleep", "dogs bark loudly"], "bark")

    assert without == 0 < with_it


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    rare, *common = scores(["alpha server", "beta server", "gamma server", "delta server"], "alpha server")

    assert all(rare > score > 0 for score in common)


def test_of_two_texts_with_the_same_word_the_shorter_one_wins() -> None:
    short, long = scores(["latency is low", "latency " + "and many other matters of the day " * 5], "latency")

    assert short > long


def test_repeating_a_word_helps_less_and_less() -> None:
    filler = "one two three four five six"
    once, twice, ten = scores([f"cost {filler}", f"cost cost {filler}", "cost " * 10 + filler], "cost")

    assert twice > once
    assert ten < 3 * once


def test_an_empty_collection_has_no_scores() -> None:
    assert Bm25([], vocabulary=["a"]).scores({"a": 1.0}) == []
    assert Bm25([[]], vocabulary=["a"]).scores({"a": 1.0, "unknown": 2.0}) == [0.0]


def test_five_megabytes_are_ranked_within_seconds() -> None:
    texts = [
        f"Sentence number {number} speaks of storage engines and their behaviour." for number in range(75_000)
    ]
    texts[4321] = "Compaction stalls writes."
    assert sum(map(len, texts)) > 5_000_000
    started = time.process_time()

    found = scores(texts, "compaction stalls")

    assert found.index(max(found)) == 4321
    assert time.process_time() - started < 20


def test_what_the_whole_speaks_of_is_central() -> None:
    texts = [
        terms(text)
        for text in ("cache cache nodes", "cache invalidation nodes", "lunch was nice", "cache nodes")
    ]

    ranked = centrality(texts)

    assert ranked[2] == min(ranked)


def test_nearly_the_same_sentence_is_a_repeat() -> None:
    assert is_repeat(["a", "b", "c"], [["c", "b", "a"]])
    assert not is_repeat(["a", "b", "c"], [["a", "x", "y"]])
    assert not is_repeat([], [[]])
