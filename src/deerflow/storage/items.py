"""Key-value items that outlive threads: LangGraph's store plus compare-and-swap."""

import operator as operators
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import orjson
from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    validate_op_namespace,
)
from typing_extensions import override

from deerflow.errors import InvalidInputError
from deerflow.storage.database import Database, Engine
from deerflow.storage.encoding import LATER, compress, decompress, dump_json, later, now_us, time_of

# Labels never contain a dot (`validate_op_namespace`), and `/` follows it in ASCII: the namespaces under
# `a.b` are exactly the range from `a.b.` to `a.b/`.
_DOT = "."
_AFTER_DOT = "/"
_COLUMNS = "namespace, name, value, created_at, updated_at"
_Name = tuple[str, str]
"""Namespace and key of an item, as stored."""
_PAGE_ROWS = 256
_MAX_INT = (1 << 63) - 1
_BELOW = "(CAST(? AS TEXT) = '' OR namespace = ? OR (namespace > ? AND namespace < ?))"
_ALIVE = "(expires_at IS NULL OR expires_at > ?)"
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "$gt": operators.gt,
    "$gte": operators.ge,
    "$lt": operators.lt,
    "$lte": operators.le,
}
_EPOCH = datetime.fromtimestamp(0, UTC)


class ItemStore(BaseStore):
    """LangGraph's store, with filters by value and TTLs but without vectors, and with a compare-and-swap."""

    supports_ttl = True

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @override
    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        checked = _checked(ops)
        if any(isinstance(op, PutOp) for op in checked):
            return await self._engine.write(lambda db: _run(db, checked))
        read = self._engine.peek if all(isinstance(op, GetOp) for op in checked) else self._engine.read
        results, used = await read(lambda db: _read(db, checked))
        if used:  # reading an item writes only if it has a TTL
            await self._engine.write(lambda db: _refresh(db, used))
        return results

    @override
    def batch(self, ops: Iterable[Op]) -> list[Result]:
        checked = _checked(ops)
        return self._engine.write_blocking(lambda db: _run(db, checked))

    async def acount(
        self,
        namespace_prefix: tuple[str, ...],
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002
    ) -> int:
        """Return how many items a search with this `filter` finds on all its pages."""
        prefix = _DOT.join(namespace_prefix)
        return await self._engine.read(lambda db: _count(db, prefix, filter or {}))

    async def aupdated_at(self, namespace: tuple[str, ...], key: str) -> datetime | None:
        """Return when an item was last changed, without reading its value; None if there is none."""
        sql = f"SELECT updated_at FROM items WHERE namespace = ? AND name = ? AND {_ALIVE}"
        row = await self._engine.peek(
            lambda db: db.execute(sql, (_DOT.join(namespace), key, now_us())).fetchone()
        )
        return None if row is None else time_of(row[0])

    async def areplace(
        self, namespace: tuple[str, ...], key: str, value: Mapping[str, Any], *, seen: datetime | None
    ) -> bool:
        """Put an item only if it has not changed since it was read; return whether it was put.

        Args:
            seen: The item's `updated_at` when it was read; None when there was none.
        """
        op = PutOp(namespace, key, dict(value))
        _checked([op])
        return await self._engine.write(lambda db: _replace(db, op, seen))


def _checked(ops: Iterable[Op]) -> list[Op]:
    checked = list(ops)
    for op in checked:
        validate_op_namespace(op)
        if isinstance(op, PutOp) and op.value is not None:
            dump_json(op.value, what=f"the item '{op.key}'")
    return checked


def _run(db: Database, ops: list[Op]) -> list[Result]:
    """Run all reads on the previous state, then the puts; the last put of a key counts."""
    results, used = _read(db, ops)
    _refresh(db, used)
    puts = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
    for put in puts.values():
        _put(db, put)
    return results


def _read(db: Database, ops: list[Op]) -> tuple[list[Result], list[_Name]]:
    """Run all reads; return their results and the items whose TTL is to be refreshed."""
    results: list[Result] = []
    used: list[_Name] = []
    for op in ops:
        match op:
            case GetOp():
                results.append(_get(db, op, used))
            case SearchOp():
                results.append(_search(db, op, used))
            case ListNamespacesOp():
                results.append(_list_namespaces(db, op))
            case PutOp():
                results.append(None)
            case _:
                raise InvalidInputError(f"the store knows no operation {type(op).__name__}")
    return results, used


def _get(db: Database, op: GetOp, used: list[_Name]) -> Item | None:
    row = db.execute(
        f"SELECT {_COLUMNS}, ttl_seconds FROM items WHERE namespace = ? AND name = ? AND {_ALIVE}",
        (_DOT.join(op.namespace), op.key, now_us()),
    ).fetchone()
    if row is None:
        return None
    if op.refresh_ttl and row[-1] is not None:
        used.append((row[0], row[1]))
    return Item(**_fields(row[:-1]))


def _put(db: Database, op: PutOp) -> None:
    namespace, now = _DOT.join(op.namespace), now_us()
    db.execute("DELETE FROM items WHERE expires_at <= ?", (now,))
    if op.value is None:
        db.execute("DELETE FROM items WHERE namespace = ? AND name = ?", (namespace, op.key))
        return
    seconds = None if op.ttl is None else op.ttl * 60  # LangGraph's TTL is in minutes
    expires_at = None if seconds is None else now + int(seconds * 1_000_000)
    db.execute(
        f"INSERT INTO items ({_COLUMNS}, ttl_seconds, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (namespace, name) DO UPDATE SET value = excluded.value, "
        "updated_at = excluded.updated_at, ttl_seconds = excluded.ttl_seconds, "
        "expires_at = excluded.expires_at",
        (namespace, op.key, compress(dump_json(op.value, what="the item")), now, now, seconds, expires_at),
    )


def _replace(db: Database, op: PutOp, seen: datetime | None) -> bool:
    namespace, body = _DOT.join(op.namespace), compress(dump_json(op.value, what="the item"))
    if seen is None:
        now = now_us()
        done = db.execute(
            f"INSERT INTO items ({_COLUMNS}) VALUES (?, ?, ?, ?, ?) ON CONFLICT (namespace, name) DO NOTHING",
            (namespace, op.key, body, now, now),
        )
    else:
        done = db.execute(
            f"UPDATE items SET value = ?, updated_at = {LATER} "
            "WHERE namespace = ? AND name = ? AND updated_at = ?",
            (body, *later(), namespace, op.key, (seen - _EPOCH) // timedelta(microseconds=1)),
        )
    return done.rowcount == 1


def _search(db: Database, op: SearchOp, used: list[_Name]) -> list[SearchItem]:
    found: list[SearchItem] = []
    matching = _matching(db, _DOT.join(op.namespace_prefix), op.filter or {})
    first = min(max(op.offset, 0), _MAX_INT // 2)  # `islice` takes no more than 63 bits
    for fields, seconds in islice(matching, first, first + max(op.limit, 0)):
        found.append(SearchItem(**fields))
        if op.refresh_ttl and seconds is not None:
            used.append((_DOT.join(fields["namespace"]), fields["key"]))
    return found


def _count(db: Database, prefix: str, wanted: Mapping[str, Any]) -> int:
    if wanted:  # values are stored compressed, so that SQL cannot compare them
        return sum(1 for _ in _matching(db, prefix, wanted))
    sql = f"SELECT count(*) FROM items WHERE {_BELOW} AND {_ALIVE}"
    return int(db.execute(sql, (*_below(prefix), now_us())).fetchone()[0])


def _matching(
    db: Database, prefix: str, wanted: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], float | None]]:
    """Yield the items whose values fit, latest first: their fields and TTL in seconds."""
    for *row, seconds in _under(db, prefix):
        fields = _fields(tuple(row))
        if all(_matches(fields["value"].get(name), part) for name, part in wanted.items()):
            yield fields, seconds


def _under(db: Database, prefix: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a namespace and of those below it, latest first, read page by page."""
    now, last = now_us(), (_MAX_INT, _MAX_INT)
    while True:
        rows = db.execute(
            f"SELECT {_COLUMNS}, ttl_seconds, key FROM items WHERE {_BELOW} "
            f"AND {_ALIVE} AND (updated_at, key) < (?, ?) ORDER BY updated_at DESC, key DESC LIMIT ?",
            (*_below(prefix), now, *last, _PAGE_ROWS),
        ).fetchall()
        for row in rows:
            yield row[:-1]
        if len(rows) < _PAGE_ROWS:
            return
        last = (rows[-1][4], rows[-1][-1])


def _below(prefix: str) -> tuple[str, ...]:
    """Return the values of `_BELOW`."""
    return prefix, prefix, prefix + _DOT, prefix + _AFTER_DOT


def _list_namespaces(db: Database, op: ListNamespacesOp) -> list[tuple[str, ...]]:
    rows = db.execute(f"SELECT DISTINCT namespace FROM items WHERE {_ALIVE}", (now_us(),)).fetchall()
    names = [tuple(namespace.split(_DOT)) for (namespace,) in rows]
    conditions = op.match_conditions or ()
    names = [name for name in names if all(_fits(condition, name) for condition in conditions)]
    return sorted({name[: op.max_depth] for name in names})[op.offset : op.offset + op.limit]


def _refresh(db: Database, names: Iterable[_Name]) -> None:
    for name in names:
        db.execute(
            "UPDATE items SET expires_at = ? + CAST(ttl_seconds * 1000000 AS BIGINT) "
            "WHERE namespace = ? AND name = ? AND ttl_seconds IS NOT NULL",
            (now_us(), *name),
        )


def _fields(row: tuple[Any, ...]) -> dict[str, Any]:
    namespace, name, value, created_at, updated_at = row
    return {
        "namespace": tuple(namespace.split(_DOT)),
        "key": name,
        "value": orjson.loads(decompress(value)),
        "created_at": time_of(created_at),
        "updated_at": time_of(updated_at),
    }


def _fits(condition: MatchCondition, name: tuple[str, ...]) -> bool:
    path = condition.path
    if len(name) < len(path):
        return False
    part = name[: len(path)] if condition.match_type == "prefix" else name[len(name) - len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))


def _matches(value: Any, wanted: Any) -> bool:
    """Return whether a value equals the wanted one, contains its parts, or satisfies its `$` operators."""
    if isinstance(wanted, dict) and any(str(key).startswith("$") for key in wanted):
        return all(_passes(value, operator, limit) for operator, limit in wanted.items())
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(_matches(value.get(key), part) for key, part in wanted.items())
    if isinstance(wanted, list | tuple):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(_matches, value, wanted))
    return bool(value == wanted)


def _passes(value: Any, operator: str, limit: Any) -> bool:
    if operator in ("$eq", "$ne"):
        return bool((value == limit) is (operator == "$eq"))
    if operator not in _COMPARISONS:
        raise InvalidInputError(f"filter operator '{operator}' is unknown: $eq $ne $gt $gte $lt $lte")
    try:
        return _COMPARISONS[operator](float(value), float(limit))
    except (TypeError, ValueError):
        return False
