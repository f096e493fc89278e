"""Keeps crons in the store, out of the reach of the store's own routes.

What people write and what servers write are two items: a server that notes a tick never undoes an edit.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from langgraph.store.base import BaseStore

from deerflow.errors import ConflictError, NotFoundError
from deerflow.scheduler.cron import Cron
from deerflow.scheduler.occurrences import Occurrence, dump_occurrence, load_occurrence

MOST_CRONS = 1000
"""How many crons one user may have."""
_CRONS = ("crons",)
_TICKS = ("cron-ticks",)
_OCCURRENCES = "cron-runs"
_MOST_OCCURRENCES = 200
_PAGE = 500
_MOMENTS = ("created_at", "updated_at", "since", "end_time", "once_at")


class CronStore:
    """The crons of all users."""

    def __init__(self, store: BaseStore) -> None:
        self._store = store

    async def create(self, cron: Cron) -> None:
        """Keep a new cron; `ConflictError` when its user has too many."""
        if len(await self.of_user(cron.user_id)) >= MOST_CRONS:
            raise ConflictError(f"there are {MOST_CRONS} crons already; delete some first")
        await self.put(cron)

    async def put(self, cron: Cron) -> None:
        """Keep a cron in place of an older version."""
        await self._store.aput(_CRONS, cron.id, _dump(cron))

    async def get(self, cron_id: str, user_id: str) -> Cron:
        """Return a cron of this user."""
        item = await self._store.aget(_CRONS, cron_id)
        if item is None or item.value["user_id"] != user_id:
            raise NotFoundError("cron", cron_id)
        return _load(item.value)

    async def of_user(self, user_id: str) -> list[Cron]:
        """Return a user's crons."""
        return [_load(value) async for _, value in self._items(_CRONS, {"user_id": user_id})]

    async def enabled(self) -> list[Cron]:
        """Return everybody's crons that are switched on."""
        return [_load(value) async for _, value in self._items(_CRONS, {"enabled": True})]

    async def delete(self, cron_id: str) -> None:
        """Forget a cron."""
        await self._store.adelete(_CRONS, cron_id)
        await self._store.adelete(_TICKS, cron_id)
        for occurrence in await self.occurrences(cron_id):
            await self._store.adelete((_OCCURRENCES, cron_id), occurrence.id)

    async def note(self, occurrence: Occurrence) -> None:
        """Keep what came of a cron at one time; of very many the oldest are forgotten."""
        namespace = (_OCCURRENCES, occurrence.cron_id)
        await self._store.aput(namespace, occurrence.id, dump_occurrence(occurrence))
        for old in (await self.occurrences(occurrence.cron_id))[_MOST_OCCURRENCES:]:
            await self._store.adelete(namespace, old.id)

    async def occurrences(self, cron_id: str) -> list[Occurrence]:
        """Return what came of a cron, newest first."""
        items = self._items((_OCCURRENCES, cron_id))
        found = [load_occurrence(value) async for _, value in items]
        return sorted(found, key=lambda occurrence: occurrence.created_at, reverse=True)

    async def ticks(self) -> dict[str, datetime]:
        """Return, by cron, the time that its last run was for."""
        return {key: datetime.fromisoformat(value["at"]) async for key, value in self._items(_TICKS)}

    async def note_tick(self, cron_id: str, at: datetime) -> None:
        """Note the time that a cron's last run was for."""
        await self._store.aput(_TICKS, cron_id, {"at": at.isoformat()})

    async def _items(
        self, namespace: tuple[str, ...], wanted: dict[str, Any] | None = None
    ) -> AsyncIterator[tuple[str, Mapping[str, Any]]]:
        offset = 0
        while True:
            page = await self._store.asearch(namespace, filter=wanted, limit=_PAGE, offset=offset)
            for item in page:
                yield item.key, item.value
            if len(page) < _PAGE:
                return
            offset += _PAGE


def _dump(cron: Cron) -> dict[str, Any]:
    fields = asdict(cron)
    return {
        name: value.isoformat() if name in _MOMENTS and value else value for name, value in fields.items()
    }


def _load(fields: Mapping[str, Any]) -> Cron:
    moments = {name: datetime.fromisoformat(fields[name]) for name in _MOMENTS if fields.get(name)}
    known = {name: value for name, value in fields.items() if name in Cron.__dataclass_fields__}
    return Cron(**{**known, **{name: moment.astimezone(UTC) for name, moment in moments.items()}})
