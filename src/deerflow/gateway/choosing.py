"""What a client wants of a long answer: some fields of its rows, and one page of them."""

from collections.abc import Sequence
from typing import Any, TypeVar

from deerflow.errors import InvalidInputError
from deerflow.runtime.shapes import selected

NEXT_PAGE = "X-Pagination-Next"
Found = TypeVar("Found")


def names_in(query: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names in a query: one each, with commas, or as the JSON that the JS client sends."""
    names = (name.strip(' []"') for part in query or () for name in part.split(","))
    return tuple(name for name in names if name)


def rows_with(rows: Sequence[dict[str, Any]], fields: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows with these of their fields; `InvalidInputError` names those that there are."""
    for row in rows[:1]:
        if unknown := sorted(set(fields) - row.keys()):
            raise InvalidInputError(f"select {unknown} is unknown; known are {sorted(row)}")
    return [selected(row, fields) for row in rows]


def page_of(found: Sequence[Found], *, limit: int, offset: int) -> tuple[Sequence[Found], dict[str, str]]:
    """Return a page and the header that says where the next begins, if there is one.

    Args:
        found: What there is from `offset` on: one more than a page holds tells that there is another.
    """
    headers = {NEXT_PAGE: str(offset + limit)} if len(found) > limit else {}
    return found[:limit], headers
