"""`deerflow approvals`: lists and revokes permanently allowed calls, with or without a running server."""

import asyncio
import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import orjson
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from deerflow.agents.allowed_calls import AllowedCall, AllowedCalls
from deerflow.cli.approve import only_text
from deerflow.client import AsyncDeerFlowClient
from deerflow.domain import DEFAULT_USER
from deerflow.domain.visible_text import visible
from deerflow.errors import InvalidInputError, NotFoundError
from deerflow.storage import ThreadQuery

SHORTEST_ID = 8
MAX_CALL_CHARS = 500
MAX_TITLE_CHARS = 30
_TITLES = ("id", "age", "runs unasked", "tool", "call")
_UNITS = ((timedelta(days=1), "d"), (timedelta(hours=1), "h"), (timedelta(minutes=1), "min"))


@dataclass(frozen=True, slots=True)
class Row:
    """An allowed call as it is listed."""

    short_id: str
    allowed: AllowedCall
    thread_title: str


def execute(
    *, action: Literal["list", "revoke"], config: Path | None, allowed_id: str = "", as_json: bool = False
) -> int:
    """Execute the action on the allowed calls in the configured database."""
    rows = asyncio.run(_execute(action, config, allowed_id))
    if action == "revoke":
        print(f"Taken back, it is asked about again: {call_line(rows[0].allowed)}")
    elif as_json:
        print(orjson.dumps([_out(row) for row in rows], option=orjson.OPT_INDENT_2).decode())
    else:
        _show(rows)
    return 0


async def _execute(action: str, config: Path | None, wanted: str) -> list[Row]:
    """Return the listed calls, or the revoked one."""
    async with AsyncDeerFlowClient.open(config) as client:
        storage = client.deerflow.storage
        calls = AllowedCalls(storage.store, DEFAULT_USER)
        allowed = await calls.all()
        threads = {each.thread_id for each in allowed}
        query = ThreadQuery(user_id=DEFAULT_USER, ids=list(threads), limit=max(len(threads), 1))
        titles = {thread.id: thread.title or "" for thread in await storage.threads.search(query)}
        short = short_ids(each.id for each in allowed)
        rows = [Row(short[each.id], each, titles.get(each.thread_id, "")) for each in allowed]
        if action == "revoke":
            rows = [find(rows, wanted.strip())]
            await calls.revoke(rows[0].allowed.id)
        return rows


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Return a short id for each id, all of one length that distinguishes them.

    Prefixes of the ids would not do: those of one call in two threads begin alike.
    """
    digests = {each: hashlib.blake2b(each.encode(), digest_size=16).hexdigest() for each in ids}
    length = SHORTEST_ID
    while len({digest[:length] for digest in digests.values()}) < len(digests):
        length += 1
    return {each: digest[:length] for each, digest in digests.items()}


def find(rows: list[Row], wanted: str) -> Row:
    """Return the call with this id; the beginning of the short id is enough if no other begins so."""
    exact = [row for row in rows if wanted == row.allowed.id]
    found = exact or [row for row in rows if wanted and row.short_id.startswith(wanted)]
    if len(found) > 1:
        known = ", ".join(row.short_id for row in found)
        raise InvalidInputError(
            f"{len(found)} allowed calls begin with '{wanted}': {known}; give more of the id"
        )
    if not found:
        raise NotFoundError("allowed call", wanted, known=[row.short_id for row in rows])
    return found[0]


def call_line(allowed: AllowedCall) -> str:
    """Return a call's command or arguments on one line, cut where they are long."""
    try:
        args = orjson.loads(allowed.args)
    except orjson.JSONDecodeError:  # long arguments are stored cut
        return _clipped(allowed.args, MAX_CALL_CHARS)
    key = only_text(args)
    if key is not None:
        return _clipped(args[key], MAX_CALL_CHARS)
    shown = {name: value for name, value in args.items() if name != "description"}
    return _clipped("  ".join(f"{name}={_value(value)}" for name, value in shown.items()), MAX_CALL_CHARS)


def _clipped(text: str, most: int) -> str:
    line = visible(text).replace("\n", " ⏎ ").replace("\t", " ")
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def age(since: str, now: datetime) -> str:
    """Return the time since a moment in its largest unit."""
    passed = now - datetime.fromisoformat(since)
    return next((f"{passed // unit} {name}" for unit, name in _UNITS if passed >= unit), "now")


def _out(row: Row) -> dict[str, Any]:
    return {**asdict(row.allowed), "short_id": row.short_id, "thread_title": row.thread_title}


def _show(rows: list[Row]) -> None:
    console = Console(highlight=False, markup=False)
    if not rows:
        console.print(
            "Nothing is allowed for good: every call that needs an approval is asked about.", soft_wrap=True
        )
        return
    now = datetime.now(UTC)
    table = [_TITLES, *(_cells(row, now) for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        *padded, call = [set_cell_size(cell, width) for cell, width in zip(cells, widths, strict=True)]
        line = Text("  ".join([*padded, call.rstrip()]))
        if console.is_terminal:
            line.truncate(console.width, overflow="ellipsis")
        console.print(line, soft_wrap=True)
    console.print(
        "Take one back with: deerflow approvals revoke ID; --json shows more of each call", soft_wrap=True
    )


def _cells(row: Row, now: datetime) -> tuple[str, ...]:
    since = age(row.allowed.created_at, now)
    return row.short_id, since, _where(row), visible(row.allowed.tool), call_line(row.allowed)


def _where(row: Row) -> str:
    if row.allowed.scope == "always":
        return "in all threads"
    return f"in {_clipped(row.thread_title or row.allowed.thread_id, MAX_TITLE_CHARS)}"
