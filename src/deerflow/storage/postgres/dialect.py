"""SQL dialect of PostgreSQL, and translation of placeholders."""

import functools
from collections.abc import Sequence
from typing import Any

from deerflow.storage.database import Dialect
from deerflow.storage.requests import dump_json


@functools.lru_cache(maxsize=1024)
def translated(sql: str) -> str:
    """Return a statement with the driver's placeholders instead of question marks."""
    return sql.replace("%", "%%").replace("?", "%s")


def _has_metadata(path: Sequence[str], wanted: Any) -> tuple[str, list[Any]]:
    found = " -> ".join(["CAST(metadata AS JSON)", *("?" for _ in path)])
    if isinstance(wanted, int | float) and not isinstance(wanted, bool):
        # 1 and 1.0 are the same number; CASE keeps strings from being cast to numbers.
        test = (
            f"CASE json_typeof({found}) WHEN 'number' "
            f"THEN CAST(CAST({found} AS TEXT) AS NUMERIC) = ? ELSE false END"
        )
        return test, [*path, *path, wanted]
    # Metadata is stored as text with sorted keys, so equal values have equal text. `jsonb` cannot hold every
    # string, and one row that it rejects would fail the whole search.
    text = dump_json(wanted, what=f"metadata key '{'.'.join(path)}'", is_sorted=True).decode()
    return f"CAST({found} AS TEXT) = ?", [*path, text]


_LISTED = "json_array_elements_text(CAST(? AS JSON)) AS given (value)"

POSTGRES = Dialect(
    clock="CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)",
    by_flight="",
    # KEY SHARE: heartbeats and cancel requests may update the row meanwhile, a claim cannot.
    shared="FOR KEY SHARE OF runs",
    locked="FOR UPDATE",
    trusts_locks=False,
    is_near=False,
    is_text_of=f"= ANY (ARRAY(SELECT value FROM {_LISTED}))",
    is_number_of=f"= ANY (ARRAY(SELECT CAST(value AS BIGINT) FROM {_LISTED}))",
    position="strpos",
    has_metadata=_has_metadata,
)
