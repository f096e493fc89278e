"""What PostgreSQL says differently, and how statements are brought to its marks."""

import functools
from collections.abc import Sequence
from typing import Any

from deerflow.storage.database import Dialect
from deerflow.storage.requests import dump_json


@functools.lru_cache(maxsize=1024)
def translated(sql: str) -> str:
    """Return a statement with the driver's marks in place of question marks."""
    return sql.replace("%", "%%").replace("?", "%s")


def _has_metadata(path: Sequence[str], wanted: Any) -> tuple[str, list[Any]]:
    found = " -> ".join(["CAST(metadata AS JSON)", *("?" for _ in path)])
    if isinstance(wanted, int | float) and not isinstance(wanted, bool):
        # 1 and 1.0 are the same number; CASE keeps texts from being read as numbers.
        test = (
            f"CASE json_typeof({found}) WHEN 'number' "
            f"THEN CAST(CAST({found} AS TEXT) AS NUMERIC) = ? ELSE false END"
        )
        return test, [*path, *path, wanted]
    # Metadata is kept as text with its keys in order: what is equal is written equally. As `jsonb` it
    # could not hold every text, and one row that it cannot read would spoil the whole search.
    text = dump_json(wanted, what=f"metadata key '{'.'.join(path)}'", is_sorted=True).decode()
    return f"CAST({found} AS TEXT) = ?", [*path, text]


_LISTED = "json_array_elements_text(CAST(? AS JSON)) AS given (value)"

POSTGRES = Dialect(
    clock="CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)",
    by_flight="",
    # A share of the key: heartbeats and wishes to stop change the row meanwhile, a claim cannot.
    shared="FOR KEY SHARE OF runs",
    locked="FOR UPDATE",
    trusts_locks=False,
    is_near=False,
    is_text_of=f"= ANY (ARRAY(SELECT value FROM {_LISTED}))",
    is_number_of=f"= ANY (ARRAY(SELECT CAST(value AS BIGINT) FROM {_LISTED}))",
    position="strpos",
    has_metadata=_has_metadata,
)
