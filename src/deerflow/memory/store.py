"""Stores of memories: the database, and those of installed packages (`deerflow.memory_stores`)."""

import logging
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, TypeVar

from langgraph.store.base import Item
from typing_extensions import override

from deerflow.config import MemorySettings
from deerflow.domain import folder_name
from deerflow.errors import ConflictError
from deerflow.memory.base import Clock, Memory, Scope, memory_of, timestamp, utc_now
from deerflow.plugins import OWN_PACKAGE, find_plugins

logger = logging.getLogger(__name__)

GROUP = "deerflow.memory_stores"
ROOT = "memory"
MAX_TRIES = 50
MAX_CACHED = 256

V = TypeVar("V")


class Items(Protocol):
    """The part of a key-value store that memories need."""

    async def aget(
        self, namespace: tuple[str, ...], key: str, *, refresh_ttl: bool | None = None
    ) -> Item | None: ...

    async def aupdated_at(self, namespace: tuple[str, ...], key: str) -> datetime | None:
        """Return when an item was last changed; None if there is none."""

    async def areplace(
        self, namespace: tuple[str, ...], key: str, value: Mapping[str, Any], *, seen: datetime | None
    ) -> bool:
        """Put an item only if it has not changed since it was read; return whether it was put."""


class MemoryStore(ABC):
    """The memories of all users; a plug-in is a subclass, created with its settings and DeerFlow's items."""

    def __init__(self, settings: MemorySettings, items: Items) -> None:
        self.settings = settings
        self.items = items

    @abstractmethod
    async def read(self, scope: Scope) -> Memory:
        """Return the memory of a scope; an empty one if there is none."""

    @abstractmethod
    async def change(self, scope: Scope, change: Callable[[Memory], Memory]) -> Memory:
        """Apply `change` and return the result; no concurrent change may be lost."""


def create_memory_store(settings: MemorySettings, items: Items, *, clock: Clock = utc_now) -> MemoryStore:
    """Return the store that `memory.manager_class` names; the database for a name that no package has."""
    plugin = find_plugins(GROUP).get(settings.manager_class)
    if plugin is None and settings.is_on:
        logger.warning("memory.manager_class: there is no %s; the database is used", settings.manager_class)
    if plugin is None or plugin.package == OWN_PACKAGE:
        return DatabaseMemoryStore(settings, items, clock=clock)
    store = plugin.load()
    if not isinstance(store, type) or not issubclass(store, MemoryStore):
        raise plugin.error(f"{store!r} is not a subclass of deerflow.memory.MemoryStore")
    return store(settings, items)


class DatabaseMemoryStore(MemoryStore):
    """Keeps each memory as one item of a key-value store; a change replaces the item it was made from."""

    def __init__(self, settings: MemorySettings, items: Items, *, clock: Clock = utc_now) -> None:
        super().__init__(settings, items)
        self._clock = clock
        self._decoded: OrderedDict[Scope, tuple[datetime, Memory]] = OrderedDict()

    @override
    async def read(self, scope: Scope) -> Memory:
        last = self._decoded.get(scope)
        if last is not None and last[0] == await self.items.aupdated_at(*_address(scope)):
            cache(self._decoded, scope, last)
            return last[1]
        return self._memory(scope, await self._item(scope))

    @override
    async def change(self, scope: Scope, change: Callable[[Memory], Memory]) -> Memory:
        for _ in range(MAX_TRIES):
            item = await self._item(scope)
            known = self._memory(scope, item)
            wanted = change(known)
            if wanted == known:
                return known
            wanted = replace(wanted, revision=known.revision + 1, last_updated=timestamp(self._clock()))
            value = {**wanted.to_dict(), "clearedAt": wanted.cleared_at}
            if await self.items.areplace(*_address(scope), value, seen=item.updated_at if item else None):
                return wanted
        raise ConflictError("the memory is being changed by too many at once; try again in a moment")

    async def _item(self, scope: Scope) -> Item | None:
        # `refresh_ttl=False`: otherwise every read would write a new expiry.
        return await self.items.aget(*_address(scope), refresh_ttl=False)

    def _memory(self, scope: Scope, item: Item | None) -> Memory:
        """Return the memory of an item; decoded once per version of the item."""
        if item is None:
            return Memory()
        last = self._decoded.get(scope)
        if last is None or last[0] != item.updated_at:
            last = (item.updated_at, memory_of(item.value))
        cache(self._decoded, scope, last)
        return last[1]


def cache(values: OrderedDict[Scope, V], scope: Scope, value: V) -> None:
    """Store a value as the most recently used one; drop the least recently used above the limit."""
    values[scope] = value
    values.move_to_end(scope)
    while len(values) > MAX_CACHED:
        values.popitem(last=False)


def _address(scope: Scope) -> tuple[tuple[str, ...], str]:
    agent = scope.agent_name
    return (ROOT, folder_name(scope.user_id)), "user" if agent is None else f"agent/{agent.lower()}"
