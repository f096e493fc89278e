"""Memory service: read, edit, render for the model, and learn."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from deerflow.config import MemoryBackendSettings, MemorySettings
from deerflow.errors import DeerFlowError, InvalidInputError
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
from deerflow.memory.recall import (
    MAX_ITEMS,
    RELEVANT,
    FactIndex,
    RecalledItem,
    collection_of,
    is_remark,
    is_small_talk,
    recalled_items,
    reduced_to,
    texts_of,
    version_of,
)
from deerflow.memory.rendering import (
    Budget,
    Measure,
    approximate_tokens,
    block,
    upper_bound,
    without_shown,
)
from deerflow.memory.store import Items, cache, create_memory_store

logger = logging.getLogger(__name__)

MAX_REREADS = 2
MAX_MESSAGE_CHARS = 2000
"""Of a message that is recalled for."""
MAX_SHOWN_FACTS = 120
"""Facts in the prompt of an extraction."""
MANUAL = "manual"


class MemoryService:
    """The memories of all users, in the store that the settings name."""

    def __init__(
        self,
        items: Items,
        index: FactIndex,
        *,
        redact: Redact,
        settings: MemorySettings | None = None,
        clock: Clock = utc_now,
    ) -> None:
        self._store = create_memory_store(settings or MemorySettings(), items, clock=clock)
        self._index = index
        self._redact = redact
        self._clock = clock
        self._facts: OrderedDict[Scope, tuple[Memory, Mapping[str, Fact]]] = OrderedDict()
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
        return await self._changed(scope, lambda known: with_fact(known, fact, max_facts=most)), fact

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

        return await self._changed(scope, change)

    async def remove_fact(self, scope: Scope, fact_id: str) -> Memory:
        """Delete a fact."""
        return await self._changed(scope, lambda known: without_fact(known, fact_id))

    async def clear(self, scope: Scope) -> Memory:
        """Clear the memory, and drop turns that were not learned from yet."""
        self.learner.forget(scope=scope)
        now = timestamp(self._clock())
        return await self._changed(scope, lambda known: Memory(cleared_at=now))

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
        replaced = tuple(fact for fact in memory.replaced if may_be_stored(fact.content, self._redact))
        return await self._changed(
            scope, lambda known: replace(known, facts=facts, sections=sections, replaced=replaced)
        )

    async def recall(self, scope: Scope, query: str, *, limit: int = MAX_ITEMS) -> list[RecalledItem]:
        """Return the facts and summaries that matter for a message of the user, best first."""
        return await self._items_for_message(scope, await self.read(scope), query, limit)

    async def search(self, scope: Scope, query: str, *, limit: int) -> list[RecalledItem]:
        """Return everything that has to do with a query, best first, also with little in common."""
        return await self._recalled(scope, await self.read(scope), query, limit, 0.0)

    async def recall_block(
        self,
        scope: Scope,
        query: str,
        settings: MemoryBackendSettings,
        measure: Measure,
        *,
        shown: Collection[str] = (),
    ) -> tuple[Memory, str]:
        """Return the memory and the prompt block for a question; empty when nothing of it matters.

        Args:
            measure: Counts tokens exactly; called only if the block may exceed the budget.
            shown: Lines that the conversation has already.
        """
        memory = await self.read(scope)
        if memory.is_empty:
            return memory, ""
        items = await self._items_for_message(scope, memory, query, MAX_ITEMS)
        chosen = reduced_to(memory, items, always=settings.guaranteed_categories)
        return memory, await _block(without_shown(chosen, shown), settings, measure)

    async def _items_for_message(
        self, scope: Scope, memory: Memory, message: str, limit: int
    ) -> list[RecalledItem]:
        message = message[:MAX_MESSAGE_CHARS]
        if is_small_talk(message):
            return []
        items = await self._recalled(scope, memory, message, limit, RELEVANT)
        return [item for item in items if item.words > 0] if is_remark(message) else items

    async def _recalled(
        self, scope: Scope, memory: Memory, query: str, limit: int, min_score: float
    ) -> list[RecalledItem]:
        if memory.is_empty or not query.strip():
            return []
        await self._indexed(scope, memory)
        # More than wanted: confidence and recency may change their order.
        found = await self._index.search(collection_of(scope), query, limit=2 * limit, min_score=min_score)
        return recalled_items(memory, found, facts=self._by_id(scope, memory), now=self._clock())[:limit]

    def _by_id(self, scope: Scope, memory: Memory) -> Mapping[str, Fact]:
        """Return the facts by id; collected once per version of a memory: a sixth of a recall of 10,000."""
        known = self._facts.get(scope)
        if known is None or known[0] is not memory:
            known = (memory, {fact.id: fact for fact in memory.facts})
        cache(self._facts, scope, known)
        return known[1]

    async def _changed(self, scope: Scope, change: Callable[[Memory], Memory]) -> Memory:
        """Change a memory, and its index with it; an index that is behind is corrected by the next recall."""
        memory = await self._store.change(scope, change)
        try:
            await self._indexed(scope, memory)
        except DeerFlowError as error:
            logger.warning("memory: the index is behind until the next question: %s", error)
        return memory

    async def _indexed(self, scope: Scope, memory: Memory) -> None:
        collection, version = collection_of(scope), version_of(memory)
        if await self._index.version(collection) == version:
            return
        if memory.is_empty:
            await self._index.delete(collection)
        else:
            await self._index.sync_texts(collection, texts_of(memory), version=version)

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
        shown = await self._shown_to_model(conversation, memory)
        answer = await conversation.ask(
            extraction_prompt(shown, conversation, self._redact), conversation.thread_id
        )
        if answer is None:
            return None
        return parse_update(answer, memory, conversation, now=self._clock(), redact=self._redact)

    async def _shown_to_model(self, conversation: PendingConversation, memory: Memory) -> Memory:
        """Return the memory; of a large one the facts that the conversation may change, and the newest."""
        if len(memory.facts) <= MAX_SHOWN_FACTS:
            return memory
        half = MAX_SHOWN_FACTS // 2
        said = "\n".join(conversation.said)
        items = await self._recalled(conversation.scope, memory, said, half, 0.0)
        wanted = {item.id for item in items} | {fact.id for fact in memory.facts[-half:]}
        return replace(memory, facts=tuple(fact for fact in memory.facts if fact.id in wanted))

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

        await self._changed(conversation.scope, change)
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
