"""Memory service: read, edit, render for the model, and learn."""

import asyncio
from collections import OrderedDict
from dataclasses import replace

from deerflow.config import MemoryBackendSettings, MemorySettings
from deerflow.errors import InvalidInputError
from deerflow.memory.base import (
    DEFAULT_CATEGORY,
    MAX_CATEGORY_CHARS,
    MAX_FACT_CHARS,
    MAX_SUMMARY_CHARS,
    Clock,
    Fact,
    Memory,
    PendingConversation,
    Scope,
    clean,
    new_fact_id,
    timestamp,
    utc_now,
)
from deerflow.memory.changes import (
    MemoryUpdate,
    apply_update,
    find_fact,
    with_changed_fact,
    with_fact,
    without_fact,
)
from deerflow.memory.extraction import (
    Redact,
    explicit_requests,
    extraction_prompt,
    may_be_stored,
    parse_update,
)
from deerflow.memory.learner import Learner
from deerflow.memory.rendering import Budget, Measure, approximate_tokens, block, upper_bound
from deerflow.memory.store import Items, cache, create_memory_store

MAX_REREADS = 2
MANUAL = "manual"


class MemoryService:
    """The memories of all users, in the store that the settings name."""

    def __init__(
        self,
        items: Items,
        *,
        redact: Redact,
        settings: MemorySettings | None = None,
        clock: Clock = utc_now,
    ) -> None:
        self._store = create_memory_store(settings or MemorySettings(), items, clock=clock)
        self._redact = redact
        self._clock = clock
        self._blocks: OrderedDict[Scope, tuple[int, MemoryBackendSettings, str]] = OrderedDict()
        self.learner = Learner(self.learn)

    async def read(self, scope: Scope) -> Memory:
        """Return the memory of a scope; an empty one if there is none."""
        return await self._store.read(scope)

    async def add_fact(
        self,
        scope: Scope,
        content: str,
        *,
        category: str,
        confidence: float,
        settings: MemoryBackendSettings,
        source: str = MANUAL,
    ) -> tuple[Memory, Fact]:
        """Add a fact; return the memory and the fact."""
        fact = Fact(
            id=new_fact_id(),
            content=self._checked(content),
            category=_category(category),
            confidence=confidence,
            created_at=timestamp(self._clock()),
            source=source,
        )
        most = settings.max_facts
        return await self._store.change(scope, lambda known: with_fact(known, fact, max_facts=most)), fact

    async def change_fact(
        self,
        scope: Scope,
        fact_id: str,
        *,
        content: str | None = None,
        category: str | None = None,
        confidence: float | None = None,
    ) -> Memory:
        """Change parts of a fact; None keeps a part."""
        words = None if content is None else self._checked(content)

        def change(known: Memory) -> Memory:
            fact = find_fact(known, fact_id)
            return with_changed_fact(
                known,
                replace(
                    fact,
                    content=fact.content if words is None else words,
                    category=fact.category if category is None else _category(category),
                    confidence=fact.confidence if confidence is None else confidence,
                ),
            )

        return await self._store.change(scope, change)

    async def remove_fact(self, scope: Scope, fact_id: str) -> Memory:
        """Delete a fact."""
        return await self._store.change(scope, lambda known: without_fact(known, fact_id))

    async def clear(self, scope: Scope) -> Memory:
        """Clear the memory, and drop turns that were not learned from yet."""
        self.learner.forget(scope=scope)
        now = timestamp(self._clock())
        return await self._store.change(scope, lambda known: Memory(cleared_at=now))

    async def put(self, scope: Scope, memory: Memory, *, settings: MemoryBackendSettings) -> Memory:
        """Replace the memory with an imported one; refuse one that exceeds the limits."""
        if len(memory.facts) > settings.max_facts:
            raise InvalidInputError(
                f"there are {len(memory.facts)} facts; at most {settings.max_facts} are remembered "
                "(memory.backend_config.max_facts)"
            )
        if len({fact.id for fact in memory.facts}) < len(memory.facts):
            raise InvalidInputError("two facts have the same id; give each one of its own")
        facts = tuple(
            replace(
                fact, content=self._checked(fact.content, what=fact.id), category=_category(fact.category)
            )
            for fact in memory.facts
        )
        sections = {
            name: replace(section, summary=self._checked(section.summary, MAX_SUMMARY_CHARS, what=name))
            for name, section in memory.sections.items()
        }
        return await self._store.change(scope, lambda known: replace(known, facts=facts, sections=sections))

    async def recall(
        self, scope: Scope, settings: MemoryBackendSettings, measure: Measure
    ) -> tuple[Memory, str]:
        """Return the memory and its prompt block.

        Args:
            measure: Counts tokens exactly; called only if the memory may exceed the budget.
        """
        memory = await self.read(scope)
        known = self._blocks.get(scope)
        if known is None or known[0] != memory.revision or known[1] is not settings:
            known = (memory.revision, settings, await _block(memory, settings, measure))
        cache(self._blocks, scope, known)
        return memory, known[2]

    async def learn(self, conversation: PendingConversation) -> bool:
        """Learn from a conversation; return False when the model gave no answer."""
        for _ in range(MAX_REREADS + 1):
            seen = await self.read(conversation.scope)
            conversation = _since(conversation, seen)
            if not conversation.turns:
                return True
            found = await self._extract(conversation, seen)
            if found is None:
                return False
            update = found
            if update.is_empty or await self._apply(conversation, seen, update):
                return True
        return await self._apply(conversation, seen, replace(update, sections=()))

    async def _extract(self, conversation: PendingConversation, memory: Memory) -> MemoryUpdate | None:
        if conversation.ask is None:
            return explicit_requests(conversation, now=self._clock(), redact=self._redact)
        answer = await conversation.ask(
            extraction_prompt(memory, conversation, self._redact), conversation.thread_id
        )
        if answer is None:
            return None
        return parse_update(answer, memory, conversation, now=self._clock(), redact=self._redact)

    async def _apply(self, conversation: PendingConversation, seen: Memory, update: MemoryUpdate) -> bool:
        """Store an update; return False when a summary that it replaces was changed meanwhile."""
        settings, is_outdated = conversation.settings, False

        def change(known: Memory) -> Memory:
            nonlocal is_outdated
            is_outdated = any(known.section(name) != seen.section(name) for name, _ in update.sections)
            if is_outdated or known.cleared_at != seen.cleared_at:
                return known
            return apply_update(
                known, update, max_facts=settings.max_facts, keeps=settings.guaranteed_categories
            )

        await self._store.change(conversation.scope, change)
        return not is_outdated

    def _checked(self, text: str, most: int = MAX_FACT_CHARS, *, what: str = "content") -> str:
        if len(text) > most:
            raise InvalidInputError(f"{what} has {len(text)} characters; at most {most} are remembered")
        words = clean(text, most)
        if not words:
            raise InvalidInputError(f"{what} is empty; send the words to remember")
        if not may_be_stored(words, self._redact):
            raise InvalidInputError(
                f"{what} looks like a secret, or names a file of one thread, and is not remembered; "
                "leave that part out"
            )
        return words


async def _block(memory: Memory, settings: MemoryBackendSettings, measure: Measure) -> str:
    if memory.is_empty:
        return ""
    budget = Budget(
        settings.max_injection_tokens,
        settings.guaranteed_token_budget,
        frozenset(settings.guaranteed_categories),
    )
    if settings.token_counting == "char":
        return block(memory, budget, approximate_tokens)
    whole = block(memory, replace(budget, tokens=1 << 30), len)
    if upper_bound(whole) <= budget.tokens:
        return whole
    return await asyncio.to_thread(block, memory, budget, measure)


def _since(conversation: PendingConversation, memory: Memory) -> PendingConversation:
    """Return a conversation without the turns from before the memory was cleared."""
    if not memory.cleared_at:
        return conversation
    return replace(
        conversation,
        turns=tuple(each for each in conversation.turns if timestamp(each.at) > memory.cleared_at),
    )


def _category(text: str) -> str:
    return clean(text, MAX_CATEGORY_CHARS).lower() or DEFAULT_CATEGORY
