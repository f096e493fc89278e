"""MemoryService in a real database: edited, shown, learnt, by many at once."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deerflow.config import MemoryBackendSettings
from deerflow.errors import InvalidInputError
from deerflow.memory import Ask, Fact, Memory, MemorySection, MemoryService, Scope, memory_of
from deerflow.memory.recall import MAX_ITEMS
from deerflow.memory.rendering import shown_lines
from deerflow.memory.service import MAX_REREADS
from deerflow.observability.logs import Redactor
from deerflow.retrieval import Index
from deerflow.storage import Storage

from .conftest import ANN, NewConversation, index_of

SETTINGS = MemoryBackendSettings()


def answering(*answers: Any) -> tuple[Ask, list[str]]:
    """Return a model that gives these answers, and what it was asked."""
    asked: list[str] = []
    waiting = list(answers)

    async def ask(prompt: str, thread_id: str) -> str | None:
        asked.append(prompt)
        answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if callable(answer):
            answer = await answer()
        return answer if answer is None or isinstance(answer, str) else json.dumps(answer)

    return ask, asked


def tea(content: str = "Likes tea.", **more: Any) -> dict[str, Any]:
    return {"newFacts": [{"content": content, "confidence": 0.9, "quote": "I like tea"}], **more}


async def add(memories: MemoryService, content: str, scope: Scope = ANN) -> Fact:
    _, fact = await memories.add_fact(scope, content, category="context", confidence=0.9, settings=SETTINGS)
    return fact


async def contents(memories: MemoryService, scope: Scope = ANN) -> list[str]:
    return [fact.content for fact in (await memories.read(scope)).facts]


async def test_users_and_their_agents_have_memories_of_their_own(memories: MemoryService) -> None:
    await add(memories, "Ann's.")
    await add(memories, "Ben's.", Scope("ben"))
    await add(memories, "The cook's.", Scope(ANN.user_id, "Cook"))

    assert await contents(memories) == ["Ann's."]
    assert await contents(memories, Scope(ANN.user_id, "cook")) == ["The cook's."]
    assert await contents(memories, Scope("eve")) == []


async def test_two_processes_that_write_at_once_lose_nothing(
    storage: Storage, memories: MemoryService
) -> None:
    other = MemoryService(storage.store, index_of(storage), redact=Redactor())

    await asyncio.gather(
        *(
            add(service, f"{name} {n}.")
            for n in range(15)
            for name, service in (("a", memories), ("b", other))
        )
    )

    memory = await memories.read(ANN)
    assert len(memory.facts) == 30
    assert memory.revision == 30


@pytest.mark.parametrize("content", ["", "  \n ", "x" * 1001, "my key is sk-abcdefgh12345678", "see /mnt/a"])
async def test_what_cannot_be_remembered_is_refused_with_a_reason(
    memories: MemoryService, content: str
) -> None:
    with pytest.raises(InvalidInputError):
        await add(memories, content)
    fact = await add(memories, "Fine.")
    with pytest.raises(InvalidInputError):
        await memories.change_fact(ANN, fact.id, content=content)

    assert await contents(memories) == ["Fine."]


async def test_a_fact_changes_in_parts(memories: MemoryService) -> None:
    fact = await add(memories, "Likes tea.")

    await memories.change_fact(ANN, fact.id, confidence=0.1)
    memory = await memories.change_fact(ANN, fact.id, category=" Goal ")

    assert memory.facts == (replace(fact, confidence=0.1, category="goal"),)


async def test_a_file_takes_the_place_of_everything(memories: MemoryService) -> None:
    await add(memories, "Old.")
    file = Memory({"workContext": MemorySection("Bakes.", "t")}, (Fact("x", "New."),))

    memory = await memories.put(ANN, file, settings=SETTINGS)

    assert (memory.facts, memory.section("workContext").summary) == (file.facts, "Bakes.")
    with pytest.raises(InvalidInputError, match="same id"):
        await memories.put(ANN, Memory(facts=(Fact("x", "a"), Fact("x", "b"))), settings=SETTINGS)
    many = tuple(Fact(str(n), f"Fact {n}.") for n in range(101))
    with pytest.raises(InvalidInputError, match="at most 100"):
        await memories.put(ANN, Memory(facts=many), settings=SETTINGS)
    assert await contents(memories) == ["New."]


async def test_a_talk_is_learnt_from(memories: MemoryService, conversation: NewConversation) -> None:
    await add(memories, "Has a dog.")
    ask, asked = answering(tea())

    assert await memories.learn(conversation("I like tea", ask=ask))

    assert await contents(memories) == ["Has a dog.", "Likes tea."]
    assert "Has a dog." in asked[0]


@pytest.mark.parametrize("answer", [None, "", "no idea"])
async def test_a_model_without_an_answer_can_be_asked_again(
    memories: MemoryService, conversation: NewConversation, answer: str | None
) -> None:
    ask, _ = answering(answer)

    assert not await memories.learn(conversation("I like tea", ask=ask))
    assert (await memories.read(ANN)).revision == 0


async def test_a_summary_that_somebody_rewrote_meanwhile_is_written_with_theirs_in_view(
    storage: Storage, memories: MemoryService, conversation: NewConversation
) -> None:
    other = MemoryService(storage.store, index_of(storage), redact=Redactor())
    theirs = Memory({"topOfMind": MemorySection("Coffee.", "t")})

    async def slow() -> str:
        await other.put(ANN, theirs, settings=SETTINGS)
        return json.dumps(tea(sections={"topOfMind": {"summary": "Tea.", "quote": "I like tea"}}))

    both = tea(sections={"topOfMind": {"summary": "Coffee and tea.", "quote": "I like tea"}})
    ask, asked = answering(slow, both)

    assert await memories.learn(conversation("I like tea", ask=ask))

    memory = await memories.read(ANN)
    assert memory.section("topOfMind").summary == "Coffee and tea."
    assert [fact.content for fact in memory.facts] == ["Likes tea."]
    assert len(asked) == 2
    assert "Coffee." in asked[1]


async def test_where_a_summary_never_rests_the_facts_are_kept(
    storage: Storage, memories: MemoryService, conversation: NewConversation
) -> None:
    other = MemoryService(storage.store, index_of(storage), redact=Redactor())
    count = iter(range(100))

    async def slow() -> str:
        summary = MemorySection(f"Version {next(count)}.", "t")
        await other.put(ANN, Memory({"topOfMind": summary}), settings=SETTINGS)
        return json.dumps(tea(sections={"topOfMind": {"summary": "Tea.", "quote": "I like tea"}}))

    ask, _ = answering(slow)

    assert await memories.learn(conversation("I like tea", ask=ask))

    memory = await memories.read(ANN)
    assert memory.section("topOfMind").summary == f"Version {MAX_REREADS}."
    assert [fact.content for fact in memory.facts] == ["Likes tea."]


async def test_what_was_said_before_all_was_forgotten_is_not_learnt_wherever_it_waits(
    storage: Storage, memories: MemoryService, conversation: NewConversation
) -> None:
    elsewhere = MemoryService(storage.store, index_of(storage), redact=Redactor())
    ask, asked = answering(tea())
    before = conversation("I like tea", ask=ask, at=datetime.now(UTC) - timedelta(seconds=1))

    await elsewhere.clear(ANN)
    assert await memories.learn(before)

    assert (asked, await contents(memories)) == ([], [])


async def test_what_is_being_learnt_while_all_is_forgotten_is_dropped(
    storage: Storage, memories: MemoryService, conversation: NewConversation
) -> None:
    elsewhere = MemoryService(storage.store, index_of(storage), redact=Redactor())

    async def slow() -> str:
        await elsewhere.clear(ANN)
        return json.dumps(tea())

    ask, _ = answering(slow)
    await memories.learn(conversation("I like tea", ask=ask))

    assert await contents(memories) == []


def length(text: str) -> int:
    return len(text) // 4


async def test_what_matters_for_a_question_is_recalled_with_its_source(memories: MemoryService) -> None:
    for content in ("Is a nurse on the night shift.", "Has a dog called Bruno.", "Lives in Bergen."):
        await add(memories, content)
    file = replace(await memories.read(ANN), sections={"workContext": MemorySection("Runs a bakery.", "t")})
    await memories.put(ANN, file, settings=SETTINGS)

    dog, *_ = await memories.recall(ANN, "What is my dog called?")
    bakery, *_ = await memories.recall(ANN, "How is the bakery?")

    assert (dog.kind, dog.content, dog.source) == ("fact", "Has a dog called Bruno.", "manual")
    assert 0 < dog.score <= 1
    assert dog.created_at.endswith("Z")
    assert (bakery.kind, bakery.id, bakery.content) == ("summary", "workContext", "Runs a bakery.")
    assert await memories.recall(Scope("ben"), "What is my dog called?") == []


async def test_newer_and_surer_facts_come_first(storage: Storage) -> None:
    now = datetime(2026, 8, 2, tzinfo=UTC)
    by_words = Index(storage.passages, None)
    memories = MemoryService(storage.store, by_words, redact=Redactor(), clock=lambda: now)
    facts = (
        Fact("old", "Drinks tea at breakfast.", confidence=0.9, created_at="2020-01-01T00:00:00Z"),
        Fact("unsure", "Drinks tea at noon.", confidence=0.2, created_at="2026-08-01T00:00:00Z"),
        Fact("new", "Drinks tea at night.", confidence=0.9, created_at="2026-08-01T00:00:00Z"),
        Fact("odd", "Drinks tea at dusk.", confidence=0.9, created_at="once upon a time"),
    )
    await memories.put(ANN, Memory(facts=facts), settings=SETTINGS)

    items = await memories.recall(ANN, "drinks tea")

    assert [item.id for item in items] == ["new", "odd", "old", "unsure"]


async def test_what_is_deleted_or_changed_is_recalled_no_more(
    storage: Storage, memories: MemoryService
) -> None:
    fact = await add(memories, "Lives in Bergen.")
    other = await add(memories, "Plays the harp in Bergen.")
    elsewhere = MemoryService(storage.store, index_of(storage), redact=Redactor())
    assert len(await elsewhere.recall(ANN, "Bergen")) == 2

    await memories.change_fact(ANN, fact.id, content="Lives in Oslo.")
    await elsewhere.remove_fact(ANN, other.id)

    assert "Bergen" not in str(await memories.recall(ANN, "Bergen"))
    assert [item.content for item in await elsewhere.recall(ANN, "Oslo")] == ["Lives in Oslo."]
    await memories.clear(ANN)
    assert await elsewhere.recall(ANN, "Oslo") == []
    assert await storage.passages.digests("memory/ann@example.org/user") == {}


async def test_an_index_that_is_behind_is_corrected_by_the_next_question(
    storage: Storage, memories: MemoryService
) -> None:
    await add(memories, "Has a dog called Bruno.")
    gone = await add(memories, "Has a cat called Tom.")
    index = index_of(storage)
    (collection,) = await storage.passages.outdated("another model")

    await index.sync_texts(collection, {gone.id: gone.content}, version="of a process that was killed")

    items = await memories.recall(ANN, "What is my dog called?")
    assert items[0].content == "Has a dog called Bruno."


@pytest.mark.parametrize("chat", ["Hi!", "Thanks a lot, great.", "你好！", "好的，继续吧。", "Ok.", "?"])
async def test_small_talk_is_given_corrections_alone(memories: MemoryService, chat: str) -> None:
    await add(memories, "Gets up at five every good morning, thanks.")
    await memories.add_fact(ANN, "Never say dear.", category="correction", confidence=0.5, settings=SETTINGS)

    _, block = await memories.recall_block(ANN, chat, SETTINGS, length)

    assert "Never say dear." in block
    assert "five" not in block


async def test_the_block_keeps_to_its_budget_and_repeats_nothing(memories: MemoryService) -> None:
    for number in range(20):
        await add(memories, f"The cat number {number} has a rather long and complicated story of its own.")
    small = MemoryBackendSettings(max_injection_tokens=100)

    _, large = await memories.recall_block(ANN, "Tell me about the cat", SETTINGS, length)
    _, first = await memories.recall_block(ANN, "Tell me about the cat", small, length)
    _, more = await memories.recall_block(
        ANN, "Tell me about the cat", small, length, shown=shown_lines([first])
    )

    assert large.count("The cat number") == MAX_ITEMS
    assert 0 < first.count("The cat number") < MAX_ITEMS
    assert not shown_lines([first]) & shown_lines([more])


async def test_a_contradicted_fact_is_kept_with_its_validity_and_a_forgotten_one_is_gone(
    memories: MemoryService, conversation: NewConversation
) -> None:
    fact = await add(memories, "Lives in Bergen.")
    moved = {"id": fact.id, "content": "Lives in Oslo.", "confidence": 0.9, "quote": "I moved to Oslo"}
    ask, _ = answering({"changedFacts": [moved]})

    assert await memories.learn(conversation("I moved to Oslo", ask=ask, thread="t9"))

    memory = await memories.read(ANN)
    (now,), (before,) = memory.facts, memory.replaced
    assert (now.content, now.source, now.valid_until) == ("Lives in Oslo.", "t9", "")
    assert (before.content, before.replaced_by, before.valid_until) == (
        "Lives in Bergen.",
        fact.id,
        now.created_at,
    )
    assert memory_of(memory.to_dict()).replaced == (before,)
    assert (await memories.remove_fact(ANN, fact.id)).replaced == ()


async def test_twenty_paraphrases_of_one_fact_are_one_fact(
    memories: MemoryService, conversation: NewConversation
) -> None:
    for words in PARAPHRASES:
        ask, _ = answering(tea(words))
        assert await memories.learn(conversation("I like tea", ask=ask))
    assert len(PARAPHRASES) == 20
    assert await contents(memories) == PARAPHRASES[:1]

    for words in DIFFERENT:
        ask, _ = answering(tea(words))
        assert await memories.learn(conversation("I like tea", ask=ask))
    assert await contents(memories) == [PARAPHRASES[0], *DIFFERENT]


PARAPHRASES = [
    "Likes green tea.",
    "The user likes green tea.",
    "User enjoys green tea.",
    "The user enjoys drinking green tea.",
    "Loves green tea.",
    "Is fond of green tea.",
    "Is a fan of green tea.",
    "Is a big fan of green tea.",
    "Green tea is the user's favourite.",
    "The user's favourite drink is green tea.",
    "The user's favorite is green tea.",
    "Prefers green tea.",
    "The user prefers to drink green tea.",
    "Very much likes green tea.",
    "Really loves to drink green tea.",
    "Usually drinks green tea.",
    "Is keen on green tea.",
    "Adores green tea!",
    "They like green tea a lot.",
    "Green tea is what the user likes.",
]
DIFFERENT = [
    "Likes black tea.",
    "Dislikes green tea.",
    "Does not like green tea.",
    "Likes green tea with 2 sugars.",
    "Owns a green tea shop.",
    "Works with green tea.",
]
