"""Is the right fact among ten thousand recalled, how fast, and is small talk left alone?

`data/recall_*.tsv` has 150 facts, half of them Chinese, with two questions each that share no term with their
fact: one says the same in other words, one needs a conclusion ("Which snacks must never be offered to me?"
for an allergy). The facts are recalled through `MemoryService` from a database with 9,850 others. The BFCL-v4
memory questions come from the package `bfcl-eval`, downloaded for the run.
"""

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.support.facts import distractors
from benchmarks.support.report import promise
from deerflow.cli.install import fetch_weights
from deerflow.config import DatabaseSettings, MemoryBackendSettings, Paths
from deerflow.config.extras import find_installer
from deerflow.memory import Fact, Memory, MemoryService, Scope
from deerflow.memory.recall import collection_of
from deerflow.retrieval import EmbeddingModel, Index, Ranker, default_embeddings, terms
from deerflow.retrieval.use import UseEmbeddings, weights_path
from deerflow.storage import Storage, open_storage

DATA = Path(__file__).parent / "data"
FACTS = 10_000
FIRST = 5
ROUNDS = 60
HOLDS = {"static": 0.4, "use": 0.85}
"""What is recalled of the paraphrases; the target for the built-in model is 0.7, which it misses."""
BFCL = "bfcl-eval==2026.3.23"
SCENARIOS = ("customer", "finance", "healthcare", "notetaker", "student")
ANN = Scope("ann")
Recall = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the contents that are recalled for a question, best first."""


@dataclass(frozen=True, slots=True)
class Case:
    fact: str
    paraphrase: str
    conclusion: str


def cases() -> list[Case]:
    lines = [line for name in ("en", "zh") for line in (DATA / f"recall_{name}.tsv").read_text().splitlines()]
    found = [Case(*line.split("\t")) for line in lines]
    shared = [
        one for one in found if set(terms(one.fact)) & set(terms(one.paraphrase + " " + one.conclusion))
    ]
    assert not shared, shared
    return found


async def recalled_share(labelled: Sequence[tuple[str, str]], recall: Recall) -> float:
    """Return for how many questions the fact is among the first five."""
    hits = [fact in (await recall(question))[:FIRST] for fact, question in labelled]
    return sum(hits) / len(hits)


def memory_of_cases(known: Sequence[Case]) -> Memory:
    contents = [*(one.fact for one in known), *distractors(FACTS - len(known))]
    day = "2026-{:02}-{:02}T00:00:00.000Z"
    return Memory(
        facts=tuple(
            Fact(f"f{n}", text, confidence=0.9, created_at=day.format(1 + n % 12, 1 + n % 28))
            for n, text in enumerate(contents)
        )
    )


async def filled(storage: Storage, model: EmbeddingModel | None, memory: Memory) -> MemoryService:
    memories = MemoryService(storage.store, Index(storage.passages, model), redact=str)
    limits = MemoryBackendSettings(max_facts=FACTS)
    await memories.put(ANN, memory, settings=limits)
    return memories


def recaller(memories: MemoryService) -> Recall:
    async def recall(question: str) -> Sequence[str]:
        return [item.content for item in await memories.search(ANN, question, limit=2 * FIRST)]

    return recall


async def shares(model: EmbeddingModel | None, known: Sequence[Case], folder: Path) -> dict[str, float]:
    async with open_storage(DatabaseSettings(), Paths(folder)) as storage:
        recall = recaller(await filled(storage, model, memory_of_cases(known)))
        return {
            "paraphrase": await recalled_share([(one.fact, one.paraphrase) for one in known], recall),
            "conclusion": await recalled_share([(one.fact, one.conclusion) for one in known], recall),
        }


async def newest_share(known: Sequence[Case]) -> float:
    newest = [fact.content for fact in sorted(memory_of_cases(known).facts, key=lambda fact: fact.created_at)]

    async def recall(question: str) -> Sequence[str]:
        return newest[-FIRST:]

    return await recalled_share([(one.fact, one.paraphrase) for one in known], recall)


async def times(model: EmbeddingModel, known: Sequence[Case], folder: Path) -> tuple[float, float]:
    """Return the median seconds of a recall and of the bare vector query."""
    async with open_storage(DatabaseSettings(), Paths(folder)) as storage:
        memories = await filled(storage, model, memory_of_cases(known))
        ours, bare, collection = [], [], collection_of(ANN)
        for number in range(ROUNDS):
            question = known[number].paraphrase
            vector = model.embed([question])[0]
            started = time.perf_counter()
            await storage.passages.find(collection, (), model=model.name, vector=vector, limit=2 * FIRST)
            bare.append(time.perf_counter() - started)
            started = time.perf_counter()
            await memories.recall(ANN, question, limit=FIRST)
            ours.append(time.perf_counter() - started)
    return median(ours[5:]), median(bare[5:])


async def small_talk_items(model: EmbeddingModel, known: Sequence[Case], folder: Path) -> tuple[int, int]:
    """Return how many chats there are, and how many facts they were given."""
    chats = (DATA / "small_talk.txt").read_text().splitlines()
    async with open_storage(DatabaseSettings(), Paths(folder)) as storage:
        few = Memory(facts=memory_of_cases(known).facts[: len(known)])
        memories = await filled(storage, model, few)
        given = [len(await memories.recall(ANN, chat)) for chat in chats]
    return len(chats), sum(given)


def bfcl_share(folder: Path, model: EmbeddingModel | None) -> float:
    """Return for how many BFCL-v4 memory questions the user's message with the answer is found."""
    with zipfile.ZipFile(next(folder.glob("bfcl_eval-*.whl"))) as wheel:

        def lines(name: str) -> list[dict[str, Any]]:
            return [json.loads(line) for line in wheel.read(f"bfcl_eval/data/{name}.json").splitlines()]

        questions = lines("BFCL_v4_memory")
        answers = {one["id"]: one for one in lines("possible_answer/BFCL_v4_memory")}
        said = {
            name: [
                message["content"]
                for conversation in lines(f"memory_prereq_conversation/memory_{name}")
                for turn in conversation["question"]
                for message in turn
                if message["role"] == "user"
            ]
            for name in SCENARIOS
        }
    rankers = {name: Ranker(texts, embeddings=model, neighbours=1) for name, texts in said.items()}
    hits = 0
    for one in questions:
        texts, answer = said[one["scenario"]], answers[one["id"]]
        right = right_messages(texts, answer["source"], answer["ground_truth"])
        found = rankers[one["scenario"]].rank(one["question"][0][0]["content"], limit=FIRST)
        # A message is shown with its neighbours, as the parts of one conversation are.
        hits += any(abs(hit.index - index) <= 1 for hit in found for index in right)
    return hits / len(questions)


def right_messages(texts: Sequence[str], source: str, answers: Sequence[str]) -> set[int]:
    plain = [_plain(text) for text in texts]
    quotes = [quote for part in source.split("...") if len(quote := _plain(part)) > 8]
    right = {index for index, text in enumerate(plain) if any(quote in text for quote in quotes)}
    return right or {
        index for index, text in enumerate(plain) if any(_plain(answer) in text for answer in answers)
    }


def _plain(text: str) -> str:
    return re.sub(r"\W+", " ", text.lower()).strip()


def better_model() -> UseEmbeddings:
    if not weights_path().is_file():
        fetch_weights(find_installer())
    return UseEmbeddings.installed()


def download_bfcl(folder: Path) -> None:
    command = [sys.executable, "-m", "pip"] if _has_pip() else [str(Path(".boot/bin/python")), "-m", "pip"]
    subprocess.run([*command, "download", "-q", "--no-deps", "-d", str(folder), BFCL], check=True)


def _has_pip() -> bool:
    return subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode == 0


async def measure(folder: Path) -> int:
    known, static, use = cases(), default_embeddings(), better_model()
    assert static is not None
    found = {
        name: await shares(model, known, folder / name)
        for name, model in (("words", None), ("static", static), ("use", use))
    }
    others = {
        "words": round(found["words"]["paraphrase"], 3),
        "newest_first": round(await newest_share(known), 3),
    }
    missed = 0
    for name, target in (("static", 0.7), ("use", 0.85)):
        missed |= promise(
            f"recall_{name}",
            ratio=found[name]["paraphrase"],
            at_least=HOLDS[name],
            target=target,
            conclusions=round(found[name]["conclusion"], 3),
            questions=len(known),
            facts=FACTS,
            **others,
        )
    ours, bare = await times(static, known, folder / "times")
    missed |= promise(
        "recall_time",
        ratio=ours / bare,
        at_most=1.5,
        recall_ms=round(ours * 1e3, 2),
        vector_ms=round(bare * 1e3, 2),
    )
    chats, given = await small_talk_items(static, known, folder / "talk")
    missed |= promise("recall_small_talk", ratio=given / chats, at_most=0.2, chats=chats, facts_given=given)
    download_bfcl(folder)
    share = bfcl_share(folder, static)
    return missed | promise(
        "recall_bfcl", ratio=share, at_least=0.95, words=round(bfcl_share(folder, None), 3)
    )


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(measure(Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
