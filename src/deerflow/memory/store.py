"""Store each memory as one item of a key-value store, without losing concurrent changes."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from langgraph.store.base import Item

from deerflow.domain import folder_name
from deerflow.errors import ConflictError
from deerflow.memory.base import Clock, Memory, Scope, memory_of, timestamp, utc_now

ROOT = "memory"
MAX_TRIES = 50
MAX_CACHED = 256


class Items(Protocol):
    """The part of a key-value store that memories need."""

    async def aget(
        self, namespace: tuple[str, ...], key: str, *, refresh_ttl: bool | None = None
    ) -> Item | None: ...

    async def areplace(
        self, namespace: tuple[str, ...], key: str, value: Mapping[str, Any], *, seen: datetime | None
    ) -> bool:
        """Put an item only if it has not changed since it was read; return whether it was put."""


class MemoryStore:
    """The memories of all users in one database."""

    def __init__(self, items: Items, *, clock: Clock = utc_now) -> None:
        self._items = items
        self._clock = clock
        self._last: OrderedDict[Scope, tuple[datetime, Memory]] = OrderedDict()

    async def read(self, scope: Scope) -> Memory:
        """Return the memory of a scope; an empty one if there is none."""
        return self._memory(scope, await self._item(scope))

    async def change(self, scope: Scope, change: Callable[[Memory], Memory]) -> Memory:
        """Apply `change` and return the result; apply it again to the latest memory after a conflict."""
        for _ in range(MAX_TRIES):
            item = await self._item(scope)
            known = self._memory(scope, item)
            wanted = change(known)
            if wanted == known:
                return known
            wanted = replace(wanted, revision=known.revision + 1, last_updated=timestamp(self._clock()))
            value = {**wanted.to_dict(), "clearedAt": wanted.cleared_at}
            if await self._items.areplace(*_address(scope), value, seen=item.updated_at if item else None):
                return wanted
        raise ConflictError("the memory is being changed by too many at once; try again in a moment")

    async def _item(self, scope: Scope) -> Item | None:
        # `refresh_ttl=False`: otherwise every read would write a new expiry.
        return await self._items.aget(*_address(scope), refresh_ttl=False)

    def _memory(self, scope: Scope, item: Item | None) -> Memory:
        """Return the memory of an item; decoded once per version of the item."""
        if item is None:
            return Memory()
        last = self._last.get(scope)
        if last is None or last[0] != item.updated_at:
            last = self._last[scope] = (item.updated_at, memory_of(item.value))
        self._last.move_to_end(scope)
        while len(self._last) > MAX_CACHED:
            self._last.popitem(last=False)
        return last[1]


def _address(scope: Scope) -> tuple[tuple[str, ...], str]:
    agent = scope.agent_name
    return (ROOT, folder_name(scope.user_id)), "user" if agent is None else f"agent/{agent.lower()}"
