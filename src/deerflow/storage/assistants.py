"""Store of assistants with all their versions, and their search query."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from deerflow.domain import Assistant
from deerflow.errors import ConflictError, InvalidInputError, NotFoundError
from deerflow.storage.database import Database, Dialect, Engine
from deerflow.storage.encoding import LATER, dump_json, later, now_us, time_of
from deerflow.storage.threads import search_conditions

_COLUMNS = (
    "assistants.id, user_id, assistants.created_at, {updated}, versions.version, graph_id, name, "
    "description, config, context, metadata"
)
_JOINED = "FROM assistants JOIN assistant_versions AS versions ON versions.assistant = assistants.id"
_LATEST = f"{_JOINED} AND versions.version = assistants.version"
_ORDER = {
    "assistant_id": "assistants.id",
    "graph_id": "graph_id",
    "name": "name",
    "created_at": "assistants.created_at",
    "updated_at": "updated_at",
}


@dataclass(frozen=True, slots=True)
class AssistantQuery:
    """Filter, order and page of an assistant search."""

    user_id: str
    graph_id: str | None = None
    name: str | None = None
    """A substring of the name, case-insensitive."""
    metadata: Mapping[str, Any] | None = None
    limit: int = 10
    offset: int = 0
    sort_by: Literal["assistant_id", "graph_id", "name", "created_at", "updated_at"] = "created_at"
    descending: bool = True


class AssistantStore:
    """Assistants of all users: one row per assistant and one per version."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def create(self, assistant: Assistant) -> Assistant:
        """Store a new assistant; raise `ConflictError` when its id is taken."""
        body = _body(assistant)

        def work(db: Database) -> Assistant:
            now = now_us()
            made = db.execute(
                "INSERT INTO assistants VALUES (?, ?, 1, ?, ?) ON CONFLICT (id) DO NOTHING",
                (assistant.id, assistant.user_id, now, now),
            )
            if not made.rowcount:
                raise ConflictError(f"assistant '{assistant.id}' exists already")
            _add_version(db, assistant.id, 1, body)
            return _find(db, assistant.id, assistant.user_id)

        return await self._engine.write(work)

    async def get(self, assistant_id: str, user_id: str) -> Assistant:
        """Return the latest version of an assistant of this user."""
        return await self._engine.peek(lambda db: _find(db, assistant_id, user_id))

    async def add_version(self, assistant: Assistant) -> Assistant:
        """Store a changed assistant as its next version, which becomes the latest."""
        body = _body(assistant)

        def work(db: Database) -> Assistant:
            lock = f"SELECT 1 FROM assistants WHERE id = ? AND user_id = ? {db.dialect.locked}"
            if db.execute(lock, (assistant.id, assistant.user_id)).fetchone() is None:
                raise NotFoundError("assistant", assistant.id)
            newest = "SELECT max(version) FROM assistant_versions WHERE assistant = ?"
            (last,) = db.execute(newest, (assistant.id,)).fetchone()
            _add_version(db, assistant.id, last + 1, body)
            return _make_latest(db, assistant.id, assistant.user_id, last + 1)

        return await self._engine.write(work)

    async def versions(self, assistant_id: str, user_id: str, *, limit: int, offset: int) -> list[Assistant]:
        """Return the versions of an assistant, newest first."""
        columns = _COLUMNS.format(updated="versions.created_at")
        sql = (
            f"SELECT {columns} {_JOINED} WHERE assistants.id = ? AND user_id = ? "
            "ORDER BY versions.version DESC LIMIT ? OFFSET ?"
        )

        def work(db: Database) -> list[Assistant]:
            _find(db, assistant_id, user_id)
            return [_assistant(row) for row in db.execute(sql, (assistant_id, user_id, limit, offset))]

        return await self._engine.read(work)

    async def set_latest(self, assistant_id: str, user_id: str, version: int) -> Assistant:
        """Make an existing version the latest."""
        known = "SELECT 1 FROM assistant_versions WHERE assistant = ? AND version = ?"

        def work(db: Database) -> Assistant:
            _find(db, assistant_id, user_id)
            if db.execute(known, (assistant_id, version)).fetchone() is None:
                raise NotFoundError("version", f"{version} of assistant {assistant_id}")
            return _make_latest(db, assistant_id, user_id, version)

        return await self._engine.write(work)

    async def search(self, query: AssistantQuery) -> list[Assistant]:
        where, values = _conditions(query, self._engine.dialect)
        columns = _COLUMNS.format(updated="updated_at")
        direction = "DESC" if query.descending else "ASC"
        sql = (
            f"SELECT {columns} {_LATEST} WHERE {where} "
            f"ORDER BY {_ORDER[query.sort_by]} {direction}, assistants.id LIMIT ? OFFSET ?"
        )
        bound = [*values, query.limit, query.offset]
        return await self._engine.read(lambda db: [_assistant(row) for row in db.execute(sql, bound)])

    async def count(self, query: AssistantQuery) -> int:
        where, values = _conditions(query, self._engine.dialect)
        sql = f"SELECT count(*) {_LATEST} WHERE {where}"
        return await self._engine.read(lambda db: int(db.execute(sql, values).fetchone()[0]))

    async def delete(self, assistant_id: str, user_id: str) -> None:
        def work(db: Database) -> None:
            _find(db, assistant_id, user_id)
            db.execute("DELETE FROM assistant_versions WHERE assistant = ?", (assistant_id,))
            db.execute("DELETE FROM assistants WHERE id = ?", (assistant_id,))

        await self._engine.write(work)


def _find(db: Database, assistant_id: str, user_id: str) -> Assistant:
    columns = _COLUMNS.format(updated="updated_at")
    sql = f"SELECT {columns} {_LATEST} WHERE assistants.id = ? AND user_id = ?"
    row = db.execute(sql, (assistant_id, user_id)).fetchone()
    if row is None:
        raise NotFoundError("assistant", assistant_id)
    return _assistant(row)


def _add_version(db: Database, assistant_id: str, version: int, body: tuple[Any, ...]) -> None:
    db.execute(
        "INSERT INTO assistant_versions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (assistant_id, version, *body, now_us()),
    )


def _make_latest(db: Database, assistant_id: str, user_id: str, version: int) -> Assistant:
    db.execute(
        f"UPDATE assistants SET version = ?, updated_at = {LATER} WHERE id = ?",
        (version, *later(), assistant_id),
    )
    return _find(db, assistant_id, user_id)


def _body(assistant: Assistant) -> tuple[Any, ...]:
    parts = [
        dump_json(
            getattr(assistant, name), what=f"the assistant's {name}", is_sorted=name == "metadata"
        ).decode()
        for name in ("config", "context", "metadata")
    ]
    return (assistant.graph_id, assistant.name, assistant.description, *parts)


def _conditions(query: AssistantQuery, dialect: Dialect) -> tuple[str, list[Any]]:
    if query.sort_by not in _ORDER:
        raise InvalidInputError(f"sort_by '{query.sort_by}' is unknown: use one of {', '.join(_ORDER)}")
    wanted = {
        "user_id = ?": query.user_id,
        "graph_id = ?": query.graph_id,
        f"{dialect.position}(lower(name), lower(?)) > 0": query.name,
    }
    return search_conditions(wanted, query.metadata, dialect)


def _assistant(row: tuple[Any, ...]) -> Assistant:
    assistant_id, user_id, created_at, updated_at, version, graph_id, name, description, *parts = row
    config, context, metadata = map(orjson.loads, parts)
    return Assistant(
        id=assistant_id,
        user_id=user_id,
        created_at=time_of(created_at),
        updated_at=time_of(updated_at),
        version=version,
        graph_id=graph_id,
        name=name,
        description=description,
        config=config,
        context=context,
        metadata=metadata,
    )
