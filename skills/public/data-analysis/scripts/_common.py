"""What the scripts of this skill share: errors for the caller and tables as text."""

import sys
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

SKILL = Path(__file__).resolve().parents[1]
REQUIREMENTS = SKILL / "requirements.txt"

sys.path.append(str(SKILL.parent / ".packages"))  # where `make skills` puts packages for all shipped skills


def stop(message: str) -> NoReturn:
    """Say what was wrong and leave with exit code 2."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


def stop_missing(package: str) -> NoReturn:
    """Say which package is missing and how to get it."""
    stop(
        f"the Python package {package} is not installed. Run: python3 -m pip install --break-system-packages "
        f"-r {REQUIREMENTS} (this needs the network; without it, the operator runs `make skills` once)"
    )


def plain(value: Any) -> Any:
    """Return `value` as something JSON can hold."""
    match value:
        case Decimal():
            return float(value)
        case date() | datetime() | time():
            return value.isoformat()
        case bytes():
            return f"{len(value)} bytes"
        case str() | int() | float() | bool() | None:
            return value
        case _:
            return str(value)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a Markdown table; numbers are rounded to what a reader needs."""
    lines = [
        "| " + " | ".join(map(_cell, columns)) + " |",
        "|" + "|".join(_rule(rows, index) for index in range(len(columns))) + "|",
    ]
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]
    return "\n".join(lines)


def _rule(rows: Sequence[Sequence[Any]], index: int) -> str:
    values = [row[index] for row in rows if row[index] is not None]
    numeric = values and all(
        isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in values
    )
    return "---:" if numeric else "---"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float | Decimal):
        return rounded(float(value))
    return str(plain(value)).replace("|", "\\|").replace("\n", " ")


def rounded(value: float) -> str:
    """Return a number with at least four significant digits and no noise."""
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.2f}" if abs(value) >= 100 else f"{value:.4g}"
