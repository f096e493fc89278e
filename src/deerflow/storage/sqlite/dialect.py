"""SQL dialect of SQLite."""

from collections.abc import Sequence
from typing import Any

from deerflow.storage.database import Dialect
from deerflow.storage.requests import dump_json


def _has_metadata(path: Sequence[str], wanted: Any) -> tuple[str, list[Any]]:
    last = f"m{len(path) - 1}"
    tables = ["json_each(metadata) AS m0"]
    for depth in range(1, len(path)):
        outer = f"m{depth - 1}"
        # Only objects are parsed as JSON: any other value may be arbitrary text.
        inside = f"CASE {outer}.type WHEN 'object' THEN {outer}.value ELSE '{{}}' END"
        tables.append(f"json_each({inside}) AS m{depth}")
    keys = " AND ".join(f"m{depth}.key = ?" for depth in range(len(path)))
    test, bound = _is(last, wanted, name=".".join(path))
    return f"EXISTS (SELECT 1 FROM {', '.join(tables)} WHERE {keys} AND {test})", [*path, *bound]


def _is(found: str, wanted: Any, *, name: str) -> tuple[str, list[Any]]:
    match wanted:
        case None:
            return f"{found}.type = 'null'", []
        case bool():
            return f"{found}.type = ?", ["true" if wanted else "false"]
        case int() | float():
            return f"{found}.type IN ('integer', 'real') AND {found}.value = ?", [wanted]
        case str():
            return f"{found}.type = 'text' AND {found}.value = ?", [wanted]
        case _:
            text = dump_json(wanted, what=f"metadata key '{name}'", is_sorted=True).decode()
            return f"{found}.value = ?", [text]


SQLITE = Dialect(
    clock="((julianday('now') - 2440587.5) * 86400)",
    by_flight="INDEXED BY runs_in_flight",
    shared="",
    locked="",
    trusts_locks=True,
    is_near=True,
    is_text_of="IN (SELECT value FROM json_each(?))",
    is_number_of="IN (SELECT value FROM json_each(?))",
    position="instr",
    has_metadata=_has_metadata,
)
