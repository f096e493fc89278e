"""Pure functions that change a memory."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from deerflow.errors import ConflictError, NotFoundError
from deerflow.memory.base import Fact, Memory, MemorySection, new_fact_id
from deerflow.memory.similarity import says_the_same

MAX_REPLACED = 200
"""How many facts that newer ones replaced are kept."""
_PLAIN = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class MemoryUpdate:
    """Changes extracted from a conversation."""

    new: tuple[Fact, ...] = ()
    changed: tuple[Fact, ...] = ()
    """Facts with new content under their existing ids."""
    removed: frozenset[str] = frozenset()
    sections: tuple[tuple[str, MemorySection], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to change."""
        return not (self.new or self.changed or self.removed or self.sections)


def comparison_key(content: str) -> str:
    """Return a normalized key: two facts with the same words have the same key."""
    return _PLAIN.sub(" ", content.casefold()).strip()


def with_fact(memory: Memory, fact: Fact, *, max_facts: int) -> Memory:
    """Return the memory with one more fact; refuse a duplicate, and one above the limit."""
    _refuse_duplicate(memory.facts, fact)
    if len(memory.facts) >= max_facts:
        raise ConflictError(
            f"the memory is full: {max_facts} facts (memory.backend_config.max_facts); delete one first"
        )
    return replace(memory, facts=(*memory.facts, fact))


def with_changed_fact(memory: Memory, fact: Fact) -> Memory:
    """Return the memory with a fact replaced by the one with the same id."""
    find_fact(memory, fact.id)
    _refuse_duplicate([other for other in memory.facts if other.id != fact.id], fact)
    return replace(memory, facts=tuple(fact if other.id == fact.id else other for other in memory.facts))


def without_fact(memory: Memory, fact_id: str) -> Memory:
    """Return the memory without a fact and what it had replaced."""
    find_fact(memory, fact_id)
    return replace(
        memory,
        facts=tuple(fact for fact in memory.facts if fact.id != fact_id),
        replaced=_without_versions(memory.replaced, {fact_id}),
    )


def find_fact(memory: Memory, fact_id: str) -> Fact:
    """Return a fact by its id."""
    for fact in memory.facts:
        if fact.id == fact_id:
            return fact
    raise NotFoundError("fact", fact_id)


def apply_update(
    memory: Memory, update: MemoryUpdate, *, max_facts: int, keeps: Iterable[str] = ()
) -> Memory:
    """Return the memory after an update.

    Args:
        max_facts: Above this number the least certain facts are dropped, the oldest of them first.
        keeps: Categories that are dropped last.
    """
    changed = {fact.id: fact for fact in update.changed}
    facts = [changed.get(fact.id, fact) for fact in memory.facts if fact.id not in update.removed]
    for fact in update.new:
        facts = _joined(facts, fact)
    older = _without_versions(memory.replaced, update.removed)
    return replace(
        memory,
        replaced=(*older, *_versions(memory.facts, changed))[-MAX_REPLACED:],
        facts=tuple(_most_certain(_each_once(facts), max_facts, frozenset(keeps))),
        sections={**memory.sections, **dict(update.sections)},
    )


def _versions(facts: Iterable[Fact], changed: Mapping[str, Fact]) -> list[Fact]:
    """Return what changed facts said before, with the end of its validity."""
    return [
        replace(fact, id=new_fact_id(), valid_until=changed[fact.id].created_at, replaced_by=fact.id)
        for fact in facts
        if fact.id in changed and not _is_same(fact, changed[fact.id])
    ]


def _without_versions(replaced: Iterable[Fact], ids: Collection[str]) -> tuple[Fact, ...]:
    """Return replaced facts without the versions of deleted ones: deleted means gone."""
    return tuple(fact for fact in replaced if fact.replaced_by not in ids)


def _is_same(one: Fact, other: Fact) -> bool:
    is_equal = comparison_key(one.content) == comparison_key(other.content)
    return is_equal or says_the_same(one.content, other.content)


def _joined(facts: list[Fact], new: Fact) -> list[Fact]:
    """Add a fact; a duplicate only raises the confidence of the existing one."""
    known = [fact for fact in facts if _is_same(fact, new)]
    if not known:
        return [*facts, new]
    surer = replace(known[0], confidence=max(known[0].confidence, new.confidence))
    return [surer if fact is known[0] else fact for fact in facts]


def _each_once(facts: Iterable[Fact]) -> list[Fact]:
    """Return facts without duplicates: a change may have made two equal."""
    found: dict[str, Fact] = {}
    for fact in facts:
        found.setdefault(comparison_key(fact.content), fact)
    return list(found.values())


def _most_certain(facts: list[Fact], most: int, keeps: frozenset[str]) -> list[Fact]:
    if len(facts) <= most:
        return facts
    ranked = sorted(
        facts, key=lambda fact: (fact.category in keeps, fact.confidence, fact.created_at), reverse=True
    )
    kept = {fact.id for fact in ranked[:most]}
    return [fact for fact in facts if fact.id in kept]


def _refuse_duplicate(facts: Iterable[Fact], fact: Fact) -> None:
    for other in facts:
        if _is_same(other, fact):
            raise ConflictError(f"this is remembered already, as {other.id}; change that one instead")
