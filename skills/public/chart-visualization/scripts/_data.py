"""Reads the data of a chart: columns of a CSV or JSON file, or lists inside the specification."""

import csv
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from _common import stop

Value = float | None


@dataclass(frozen=True, slots=True)
class ChartData:
    """Positions (categories, dates or numbers) and named series of numbers."""

    x: list[Any]
    series: dict[str, list[Value]]


def read_data(spec: dict[str, Any], folder: Path) -> ChartData:
    """Return the data that `spec` names; stop with what is wrong."""
    data = spec.get("data")
    if isinstance(data, dict):
        return _inline(data)
    if not isinstance(data, str):
        stop('\'data\' is missing: give a CSV or JSON file, or {"x": [...], "series": {"name": [...]}}')
    rows = _rows(folder / data)
    x, y, by = spec.get("x"), spec.get("y"), spec.get("by")
    columns = [y] if isinstance(y, str) else list(y or [])
    wanted = [name for name in [x, by, *columns] if name is not None]
    for name in wanted:
        if name not in rows[0]:
            stop(f"{data} has no column {name!r}; it has {', '.join(rows[0])}")
    if not columns:
        stop(f"'y' is missing: name one or more of the columns {', '.join(rows[0])}")
    if by is not None:
        return _grouped(rows, x, columns[0], by)
    places = positions([row[x] for row in rows] if x else range(1, len(rows) + 1))
    return ChartData(places, {name: [number(row[name], name) for row in rows] for name in columns})


def _inline(data: dict[str, Any]) -> ChartData:
    series = data.get("series")
    if not isinstance(series, dict) or not series:
        stop("'data.series' is missing: {\"name\": [numbers]}")
    x = positions(data.get("x") or range(1, 1 + max(map(len, series.values()))))
    for name, values in series.items():
        if len(values) != len(x) and "x" in data:
            stop(f"series {name!r} has {len(values)} values for {len(x)} positions in 'x'")
    return ChartData(x, {name: [number(one, name) for one in values] for name, values in series.items()})


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        if path.suffix.lower() == ".json":
            rows = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                stop(f"{path.name} must be a list of objects, one per row")
        else:
            text = path.read_text(encoding="utf-8-sig")
            dialect = "excel-tab" if "\t" in text.partition("\n")[0] else "excel"
            rows = list(csv.DictReader(text.splitlines(), dialect=dialect))
    except (OSError, ValueError) as error:
        stop(f"{path} cannot be read: {error}")
    if not rows:
        stop(f"{path.name} has no rows")
    return rows


def _grouped(rows: list[dict[str, Any]], x: str | None, y: str, by: str) -> ChartData:
    if x is None:
        stop("'by' needs 'x' as well: the positions that all groups share")
    found = positions([row[x] for row in rows])
    groups: dict[str, dict[Any, Value]] = {}
    for row, place in zip(rows, found, strict=True):
        group = groups.setdefault(str(row[by]), {})
        if place in group:
            stop(f"{by} {row[by]!r} has two values at {x} {row[x]!r}; aggregate the data first")
        group[place] = number(row[y], y)
    places = list(dict.fromkeys(found))
    if not isinstance(places[0], str):
        places.sort()
    return ChartData(places, {name: [group.get(place) for place in places] for name, group in groups.items()})


def number(value: Any, name: str) -> Value:
    """Return a value as a number; an empty one is a gap."""
    if value is None or value == "":
        return None
    if isinstance(value, int | float):
        return float(value)
    text = str(value).strip().replace(",", "").lstrip("$€£¥￥")
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        stop(f"{value!r} in {name!r} is no number")


def _position(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    for shape in ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m"):
        try:
            return datetime.strptime(value, shape)  # noqa: DTZ007 - a date on an axis has no zone
        except ValueError:
            continue
    try:
        return float(value)
    except ValueError:
        return value


def positions(values: Iterable[Any]) -> list[Any]:
    """Return dates or numbers if all values are such, else the values as text."""
    raw = list(values)
    found = [_position(value) for value in raw]
    kinds = {date if isinstance(one, date) else str if isinstance(one, str) else float for one in found}
    return found if len(kinds) <= 1 else [str(value) for value in raw]
