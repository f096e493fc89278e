"""Stores crons in the LangGraph store, in namespaces that the store API does not expose.

User edits and the last tick are separate items: a server that records a tick never overwrites an edit.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TypeVar

from langgraph.store.base import BaseStore

from deerflow.errors import ConflictError, NotFoundError
from deerflow.scheduler.cron import CronJob, Occurrence

Record = TypeVar("Record", CronJob, Occurrence)

MAX_CRONS = 1000
"""Maximum number of crons per user."""
_CRONS = ("crons",)
_TICKS = ("cron-ticks",)
_OCCURRENCES = "cron-runs"
_MAX_OCCURRENCES = 200
_PAGE = 500
_TIMES = ("created_at", "updated_at", "since", "end_time", "once_at", "scheduled_for")


class CronStore:
    """Storage for the crons of all users."""

    def __init__(self, store: BaseStore) -> None:
        self._store = store

    async def create(self, cron: CronJob) -> None:
        """Store a new cron; raise `ConflictError` if its user has too many."""
        if len(await self.of_user(cron.user_id)) >= MAX_CRONS:
            raise ConflictError(f"there are {MAX_CRONS} crons already; delete some first")
        await self.put(cron)

    async def put(self, cron: CronJob) -> None:
        """Insert or replace a cron."""
        await self._store.aput(_CRONS, cron.id, _dump(cron))

    async def get(self, cron_id: str, user_id: str) -> CronJob:
        """Return a cron of this user."""
        item = await self._store.aget(_CRONS, cron_id)
        if item is None or item.value["user_id"] != user_id:
            raise NotFoundError("cron", cron_id)
        return _load(CronJob, item.value)

    async def of_user(self, user_id: str) -> list[CronJob]:
        """Return a user's crons."""
        return [_load(CronJob, value) async for _, value in self._items(_CRONS, {"user_id": user_id})]

    async def enabled(self) -> list[CronJob]:
        """Return the enabled crons of all users."""
        return [_load(CronJob, value) async for _, value in self._items(_CRONS, {"enabled": True})]

    async def delete(self, cron_id: str) -> None:
        """Delete a cron with its last tick and its occurrences."""
        await self._store.adelete(_CRONS, cron_id)
        await self._store.adelete(_TICKS, cron_id)
        for occurrence in await self.occurrences(cron_id):
            await self._store.adelete((_OCCURRENCES, cron_id), occurrence.id)

    async def add_occurrence(self, occurrence: Occurrence) -> None:
        """Store an occurrence and delete the oldest ones above the limit."""
        namespace = (_OCCURRENCES, occurrence.cron_id)
        await self._store.aput(namespace, occurrence.id, _dump(occurrence))
        for old in (await self.occurrences(occurrence.cron_id))[_MAX_OCCURRENCES:]:
            await self._store.adelete(namespace, old.id)

    async def occurrences(self, cron_id: str) -> list[Occurrence]:
        """Return the occurrences of a cron, newest first."""
        items = self._items((_OCCURRENCES, cron_id))
        found = [_load(Occurrence, value) async for _, value in items]
        return sorted(found, key=lambda occurrence: occurrence.created_at, reverse=True)

    async def ticks(self) -> dict[str, datetime]:
        """Return the time of the last tick by cron id."""
        return {key: datetime.fromisoformat(value["at"]) async for key, value in self._items(_TICKS)}

    async def set_last_tick(self, cron_id: str, at: datetime) -> None:
        """Record the time of a cron's last tick."""
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


def _dump(record: CronJob | Occurrence) -> dict[str, Any]:
    fields = asdict(record)
    return {name: value.isoformat() if name in _TIMES and value else value for name, value in fields.items()}


def _load(kind: type[Record], fields: Mapping[str, Any]) -> Record:
    known = {name: value for name, value in fields.items() if name in kind.__dataclass_fields__}
    times = {name: datetime.fromisoformat(known[name]) for name in _TIMES if known.get(name)}
    return kind(**{**known, **{name: time.astimezone(UTC) for name, time in times.items()}})
