"""MemoryService in a real database: edited, shown, learnt, by many at once."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deerflow.config import MemoryBackendSettings
from deerflow.errors import InvalidInputError
from deerflow.memory import Ask, Fact, Memory, MemorySection, MemoryService, Scope
from deerflow.memory.service import MAX_REREADS
from deerflow.observability.logs import Redactor
from deerflow.storage import Storage

from .conftest import ANN, NewConversation

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
    other = MemoryService(storage.store, redact=Redactor())

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
    other = MemoryService(storage.store, redact=Redactor())
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
    other = MemoryService(storage.store, redact=Redactor())
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
    elsewhere = MemoryService(storage.store, redact=Redactor())
    ask, asked = answering(tea())
    before = conversation("I like tea", ask=ask, at=datetime.now(UTC) - timedelta(seconds=1))

    await elsewhere.clear(ANN)
    assert await memories.learn(before)

    assert (asked, await contents(memories)) == ([], [])


async def test_what_is_being_learnt_while_all_is_forgotten_is_dropped(
    storage: Storage, memories: MemoryService, conversation: NewConversation
) -> None:
    elsewhere = MemoryService(storage.store, redact=Redactor())

    async def slow() -> str:
        await elsewhere.clear(ANN)
        return json.dumps(tea())

    ask, _ = answering(slow)
    await memories.learn(conversation("I like tea", ask=ask))

    assert await contents(memories) == []


async def test_the_block_is_made_once_and_anew_when_something_changed(memories: MemoryService) -> None:
    measured: list[str] = []

    def measure(text: str) -> int:
        measured.append(text)
        return len(text) // 4

    small = MemoryBackendSettings(max_injection_tokens=100)
    for number in range(20):
        await add(memories, f"Fact number {number}, which is rather long.")

    _, first = await memories.recall(ANN, small, measure)
    count = len(measured)
    _, again = await memories.recall(ANN, small, measure)
    counted_again = len(measured)
    await memories.clear(ANN)
    _, empty = await memories.recall(ANN, small, measure)

    assert first == again
    assert 0 < first.count("Fact number") < 20
    assert count == counted_again > 0
    assert empty == ""


async def test_a_small_memory_is_shown_without_counting(memories: MemoryService) -> None:
    await add(memories, "Likes tea.")

    def fail(text: str) -> int:
        raise AssertionError("counted")

    _, block = await memories.recall(ANN, SETTINGS, fail)
    by_length = MemoryBackendSettings(token_counting="char", max_injection_tokens=100)
    _, short = await memories.recall(ANN, by_length, fail)

    assert "Likes tea." in block
    assert "Likes tea." in short
