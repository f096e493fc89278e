"""Keeps memories as items of a key-value store, one item each, and loses no change of anybody."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from langgraph.store.base import Item

from deerflow.domain import folder_name
from deerflow.errors import ConflictError
from deerflow.memory.base import Clock, Memory, Scope, memory_of, stamp, utc_now

ROOT = "memory"
MAX_TRIES = 50


class Items(Protocol):
    """What a memory needs of a store."""

    async def aget(self, namespace: tuple[str, ...], key: str) -> Item | None: ...

    async def areplace(
        self, namespace: tuple[str, ...], key: str, value: Mapping[str, Any], *, seen: datetime | None
    ) -> bool:
        """Put an item only where it is still the one that was seen; tell whether that was so."""


class MemoryStore:
    """The memories of all users in one database."""

    def __init__(self, items: Items, *, clock: Clock = utc_now) -> None:
        self._items = items
        self._clock = clock

    async def read(self, scope: Scope) -> Memory:
        """Return what is remembered; an empty memory where nothing is."""
        item = await self._items.aget(*_place(scope))
        return Memory() if item is None else memory_of(item.value)

    async def change(self, scope: Scope, change: Callable[[Memory], Memory]) -> Memory:
        """Return the memory as `change` made it; made anew from the latest one when somebody was quicker."""
        for _ in range(MAX_TRIES):
            item = await self._items.aget(*_place(scope))
            known = Memory() if item is None else memory_of(item.value)
            wanted = change(known)
            if wanted == known:
                return known
            wanted = replace(wanted, revision=known.revision + 1, last_updated=stamp(self._clock()))
            value = {**wanted.to_dict(), "clearedAt": wanted.cleared_at}
            if await self._items.areplace(*_place(scope), value, seen=item.updated_at if item else None):
                return wanted
        raise ConflictError("the memory is being changed by too many at once; try again in a moment")


def _place(scope: Scope) -> tuple[tuple[str, ...], str]:
    agent = scope.agent_name
    return (ROOT, folder_name(scope.user_id)), "user" if agent is None else f"agent/{agent.lower()}"
