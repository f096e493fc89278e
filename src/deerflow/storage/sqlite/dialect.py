"""What SQLite says differently."""

from typing import Any

from deerflow.storage.database import Dialect
from deerflow.storage.requests import dump_json


def _has_metadata(name: str, wanted: Any) -> tuple[str, list[Any]]:
    bound: list[Any]
    match wanted:
        case None:
            test, bound = "type = 'null'", []
        case bool():
            test, bound = "type = ?", ["true" if wanted else "false"]
        case int() | float():
            test, bound = "type IN ('integer', 'real') AND value = ?", [wanted]
        case str():
            test, bound = "type = 'text' AND value = ?", [wanted]
        case _:
            text = dump_json(wanted, what=f"metadata key '{name}'", is_sorted=True).decode()
            test, bound = "value = ?", [text]
    return f"EXISTS (SELECT 1 FROM json_each(metadata) WHERE key = ? AND {test})", [name, *bound]


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
