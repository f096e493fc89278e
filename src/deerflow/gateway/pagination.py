"""Field selection and pagination of list responses, and the `Prefer` header of changes."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Header
from starlette.responses import Response

from deerflow.errors import InvalidInputError
from deerflow.gateway.deps import json_response
from deerflow.runtime.json_views import selected

NEXT_PAGE = "X-Pagination-Next"
TOTAL = "X-Pagination-Total"
MINIMAL = "return=minimal"
Found = TypeVar("Found")
Prefer = Annotated[str | None, Header()]


def names_in(query: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names in a query: repeated, comma-separated, or as the JSON that the JS client sends."""
    names = (name.strip(' []"') for part in query or () for name in part.split(","))
    return tuple(name for name in names if name)


def rows_with(rows: Sequence[dict[str, Any]], fields: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows with only these fields; `InvalidInputError` lists the known ones."""
    for row in rows[:1]:
        if unknown := sorted(set(fields) - row.keys()):
            raise InvalidInputError(f"select {unknown} is unknown; known are {sorted(row)}")
    return [selected(row, fields) for row in rows]


def selected_values(shown: dict[str, Any], fields: Sequence[str] | None) -> dict[str, Any]:
    """Return the selected fields of a thread or state; `values.NAME` is one value of the state."""
    chosen = selected(shown, fields)
    keys = [field.removeprefix("values.") for field in fields or () if field.startswith("values.")]
    if keys and "values" not in chosen:
        chosen["values"] = {key: shown["values"][key] for key in keys if key in shown["values"]}
    return chosen


def page_of(
    found: Sequence[Found], *, limit: int, offset: int, total: int
) -> tuple[Sequence[Found], dict[str, str]]:
    """Return a page, with headers for the total and the offset of the next page.

    Args:
        found: Rows from `offset` on, up to the end of the page or further.
        total: Number of rows altogether.
    """
    headers = {TOTAL: str(total)}
    if total > offset + limit:
        headers[NEXT_PAGE] = str(offset + limit)
    return found[:limit], headers


async def total_of(
    found: Sequence[object], *, limit: int, offset: int, count: Callable[[], Awaitable[int]]
) -> int:
    """Return the number of rows altogether: the last page tells it without a count query.

    Args:
        found: The rows of the page.
        count: Counts all rows; called for other pages only.
    """
    if len(found) < limit and (found or not offset):
        return offset + len(found)
    return await count()


def changed(shown: Any, prefer: str | None) -> Response:
    """Respond to a change with its result, or with 204 if the client sent `Prefer: return=minimal`."""
    preferences = {preference.strip().lower() for preference in (prefer or "").split(",")}
    if MINIMAL in preferences:
        return Response(status_code=204, headers={"Preference-Applied": MINIMAL})
    return json_response(shown)
