"""Texts that are indexed, found, changed and deleted: the same for every database."""

import asyncio
import random
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from deerflow.errors import EmbeddingError
from deerflow.retrieval import EmbeddingModel, Index, IndexText, default_embeddings, rank
from deerflow.storage import Storage

FACTS = {
    "f1": "The user is a nurse who works at night.",
    "f2": "The user's daughter has her birthday in June.",
    "f3": "用户喜欢喝咖啡。",
    "f4": "数据库的版本是十六。",
    "f5": "The deployment runs on Kubernetes in Frankfurt.",
}


def texts(facts: dict[str, str]) -> dict[str, list[IndexText]]:
    return {source: [IndexText(text, {"of": source})] for source, text in facts.items()}


class RecordingModel(EmbeddingModel):
    """The installed model under another name; counts, and fails when told to."""

    def __init__(self, name: str) -> None:
        found = default_embeddings()
        assert found is not None
        self._model = found
        self.name = name
        self.unrelated = found.unrelated
        self.embedded: list[str] = []
        self.fails = False

    def embed(self, texts: Sequence[str]) -> Any:
        if self.fails:
            raise EmbeddingError("the service is away")
        self.embedded += texts
        return self._model.embed(texts)


class IndexContract:
    """A subclass supplies `storage` and `elsewhere`."""

    @pytest.fixture
    def index(self, storage: Storage) -> Index:
        return Index(storage.passages, default_embeddings())

    @pytest.fixture
    def by_words(self, storage: Storage) -> Index:
        return Index(storage.passages, None)

    async def found(self, index: Index, query: str, collection: str = "c") -> list[str]:
        return [hit.source for hit in await index.search(collection, query)]

    @pytest.mark.parametrize(
        ("query", "expected"), [("nurses", "f1"), ("数据库版本", "f4"), ("kubernetes deployments", "f5")]
    )
    async def test_words_find_a_text(self, by_words: Index, query: str, expected: str) -> None:
        await by_words.sync("c", texts(FACTS))

        hits = await by_words.search("c", query)

        assert [hit.source for hit in hits] == [expected]
        assert (hits[0].text, hits[0].data) == (FACTS[expected], {"of": expected})
        assert hits[0].score == hits[0].words > 0

    @pytest.mark.parametrize(("query", "expected"), [("When was the child born?", "f2"), ("coffee", "f3")])
    async def test_meaning_finds_a_text_without_shared_words(
        self, index: Index, query: str, expected: str
    ) -> None:
        await index.sync("c", texts(FACTS))

        assert (await self.found(index, query))[0] == expected

    async def test_scores_are_those_of_ranking_in_memory(self, index: Index) -> None:
        words = [
            "night",
            "nurse",
            "coffee",
            "June",
            "Frankfurt",
            "birthday",
            "database",
            "works",
            "咖啡",
            "数据库",
        ]
        choose = random.Random(7)
        facts = {f"f{n:03}": " ".join(choose.choices(words, k=choose.randint(2, 9))) for n in range(80)}
        await index.sync("c", texts(facts))

        for query in ("night nurse", "咖啡", "birthday in June with coffee"):
            here = rank(query, list(facts.values()), embeddings=default_embeddings(), limit=8)
            there = await index.search("c", query, limit=8)
            assert [hit.score for hit in there] == pytest.approx([hit.score for hit in here], abs=1e-4)
            assert {hit.text for hit in there[:3]} <= {list(facts.values())[hit.index] for hit in here}

    async def test_unchanged_texts_are_not_embedded_again(self, storage: Storage) -> None:
        model = RecordingModel("one")
        index = Index(storage.passages, model)
        await index.sync("c", texts(FACTS), version="1")

        await index.sync("c", texts({**FACTS, "f1": "The user is a pilot."}), version="2")

        assert model.embedded == [*FACTS.values(), "The user is a pilot."]
        assert await index.version("c") == "2"
        assert await self.found(index, "nurse at night") != ["f1"]
        assert (await self.found(index, "pilot"))[0] == "f1"

    async def test_what_is_deleted_is_found_no_more(self, index: Index, by_words: Index) -> None:
        await index.sync("c", texts(FACTS))

        await index.sync("c", texts({source: FACTS[source] for source in ("f1", "f2", "f3")}))
        await index.remove("c", ["f1"])

        assert await self.found(by_words, "nurse 数据库 kubernetes") == []
        assert set(await self.found(index, "nurse 数据库 kubernetes birthday 咖啡")) <= {"f2", "f3"}
        await index.delete("c")
        assert await self.found(index, "birthday 咖啡") == []
        assert await index.version("c") == ""

    async def test_a_deleted_text_can_be_added_again(self, by_words: Index) -> None:
        for _ in range(3):
            await by_words.sync("c", texts(FACTS))
            assert await self.found(by_words, "nurse") == ["f1"]
            await by_words.delete("c")
            assert await self.found(by_words, "nurse") == []

    async def test_collections_do_not_see_each_other(self, index: Index) -> None:
        await index.sync("a", texts({"f1": FACTS["f1"]}))
        await index.sync("b", texts({"f1": FACTS["f2"], "f9": "night"}))
        alone = await index.search("a", "nurse night")

        await index.sync("b", texts({f"n{number}": "nurse night" for number in range(20)}))

        assert await index.search("a", "nurse night") == alone
        assert [hit.text for hit in alone] == [FACTS["f1"]]
        await index.delete("a")
        assert len(await index.search("b", "nurse", limit=30)) == 20

    async def test_a_source_has_parts_with_places(self, by_words: Index) -> None:
        parts = [IndexText("alpha", {"line": 1}), IndexText("beta", {"line": 5}, searchable="Title\nbeta")]
        await by_words.put("c", {"doc.md": parts})

        (hit,) = await by_words.search("c", "title")

        assert (hit.source, hit.part, hit.text, hit.data) == ("doc.md", 1, "beta", {"line": 5})
        await by_words.put("c", {"doc.md": parts[:1]})
        assert await by_words.search("c", "title") == []

    async def test_odd_texts_are_stored_and_odd_queries_answered(self, index: Index) -> None:
        odd = [
            "",
            "…",
            "\x00 nul",
            "'; DROP TABLE passages; --",
            "a" * 5000,
            "emoji 🦌 deer",
            "%_?\\",
            "AND OR NOT",
        ]
        await index.sync("c", {str(number): [IndexText(text)] for number, text in enumerate(odd)})

        assert (await self.found(index, "emoji"))[0] == "5"
        for query in ("", "NOT", '"', "a* OR b", "(", "NEAR(a b)", "x" * 10_000, "\x00", "?" * 100):
            await index.search("c", query)

    async def test_another_process_finds_it_at_once(self, index: Index, elsewhere: Storage) -> None:
        await index.sync("c", texts(FACTS))

        assert await self.found(Index(elsewhere.passages, None), "nurse") == ["f1"]

    async def test_a_new_model_answers_before_during_and_after_embedding_anew(self, storage: Storage) -> None:
        old, new = RecordingModel("old"), RecordingModel("new")
        await Index(storage.passages, old).sync("c", texts(FACTS))
        index = Index(storage.passages, new, previous=[old])

        before = await self.found(index, "When was the child born?")
        await index.put("c", texts({"f6": "The user lives in Berlin."}))
        during = await self.found(index, "When was the child born?")
        count = await index.reindex()
        old.fails = True
        after = await self.found(index, "When was the child born?")

        assert before[0] == during[0] == after[0] == "f2"
        assert (count, await index.reindex()) == (1, 0)
        assert sorted(set(new.embedded) - {"When was the child born?"}) == sorted(
            [*FACTS.values(), "The user lives in Berlin."]
        )
        assert (await storage.passages.state("c")).model == "new"

    async def test_words_answer_while_the_model_is_away_and_meaning_later(self, storage: Storage) -> None:
        model = RecordingModel("remote")
        index = Index(storage.passages, model)
        model.fails = True
        await index.sync("c", texts(FACTS))

        assert await self.found(index, "nurse") == ["f1"]
        model.fails = False
        assert await index.reindex() == 1
        assert (await self.found(index, "When was the child born?"))[0] == "f2"

    async def test_a_text_deleted_while_it_is_embedded_leaves_no_vector(self, storage: Storage) -> None:
        old, new = RecordingModel("old"), RecordingModel("new")
        await Index(storage.passages, old).sync("c", texts(FACTS))
        (key, _), *_ = await storage.passages.without_vector("c", "new")
        await Index(storage.passages, old).delete("c")

        await storage.passages.put_vectors("c", "new", {key: new.embed(["x"])[0]})

        assert await storage.passages.outdated("new") == []

    async def test_a_query_does_not_wait_for_a_slow_model(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model, answered = RecordingModel("slow"), threading.Event()
        index = Index(storage.passages, model)
        await index.sync("c", texts(FACTS))
        monkeypatch.setattr("deerflow.retrieval.index.QUERY_SECONDS", 0.05)
        monkeypatch.setattr(model, "embed", lambda texts: answered.wait(30))

        assert await self.found(index, "nurse") == ["f1"]
        answered.set()

    async def test_many_texts_leave_room_for_other_writes_and_have_a_version_when_complete(
        self, storage: Storage
    ) -> None:
        index = Index(storage.passages, None)
        many = {f"f{number}": f"text number {number}" for number in range(1001)}
        seen: list[str] = []

        async def watch() -> None:
            while "1" not in seen:
                seen.append(await index.version("c"))
                await asyncio.sleep(0)  # a point read may not yield to the loop

        await asyncio.gather(index.sync_texts("c", many, version="1"), watch())

        assert (seen[0], seen[-1]) == ("", "1")
        assert (await storage.passages.state("c")).passages == 1001
        await index.sync_texts("c", {"f7": "text number 7"}, version="2")
        assert (await storage.passages.state("c")).passages == 1
