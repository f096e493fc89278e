"""Shows what data files hold: tables, columns, types, missing values, ranges, and what looks wrong."""

import argparse
import json
from typing import Any

from _common import markdown_table, plain
from _tables import Data, Table, is_numeric, load, quoted

TOP = 3
NUMBER_IN_TEXT = r"^\s*[-+(]?\s*[$€£¥￥]?\s*[0-9]{1,3}([,， ][0-9]{3})*([.,][0-9]+)?\s*[%元)]?\s*$"
DATE_IN_TEXT = r"^\s*[0-9]{1,4}[-/.年][0-9]{1,2}[-/.月][0-9]{1,4}日?(\s.*)?$"


def main() -> None:
    """Print the profile of every table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", help="CSV, TSV, Excel (.xlsx), SQLite, Parquet or JSON files")
    parser.add_argument("--sample", type=int, default=5, help="rows to show of each table (default 5)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    options = parser.parse_args()

    data = load(options.files)
    profiles = [_profile(data, table, options.sample) for table in data.tables]
    print(json.dumps(profiles, ensure_ascii=False, indent=1) if options.json else _markdown(profiles))


def _profile(data: Data, table: Table, sample: int) -> dict[str, Any]:
    name = quoted(table.name)
    columns = data.columns(table.name)
    count = data.rows(f"SELECT count(*) FROM {name}")[0][0]
    profile = [_column(data, name, column, kind, count) for column, kind in columns.items()]
    duplicates = count - data.rows(f"SELECT count(*) FROM (SELECT DISTINCT * FROM {name})")[0][0]
    warnings = [f"{duplicates} rows repeat another row in every column"] if duplicates else []
    warnings += [f"{one['name']}: {words}" for one in profile for words in one.pop("warnings")]
    rows = data.rows(f"SELECT * FROM {name} LIMIT {max(sample, 0)}")
    return {
        "table": table.name,
        "source": table.source,
        "notes": list(table.notes),
        "rows": count,
        "columns": profile,
        "warnings": warnings,
        "sample": [[plain(value) for value in row] for row in rows],
    }


def _column(data: Data, table: str, column: str, kind: str, count: int) -> dict[str, Any]:
    name = quoted(column)
    filled, distinct, low, high = data.rows(
        f"SELECT count({name}), count(DISTINCT {name}), min({name}), max({name}) FROM {table}"
    )[0]
    profile: dict[str, Any] = {
        "name": column,
        "type": kind,
        "missing": count - filled,
        "distinct": distinct,
        "min": plain(low),
        "max": plain(high),
    }
    if is_numeric(kind):
        mean, median = data.rows(f"SELECT avg({name}), median({name}) FROM {table}")[0]
        profile |= {"mean": plain(mean), "median": plain(median)}
    elif distinct <= max(50, filled // 2):
        top = data.rows(
            f"SELECT {name}, count(*) FROM {table} WHERE {name} IS NOT NULL GROUP BY 1 ORDER BY 2 "
            f"DESC, 1 LIMIT {TOP}"
        )
        profile["top"] = [[plain(value), times] for value, times in top]
    profile["warnings"] = _warnings(data, table, name, kind, count, filled, distinct)
    return profile


def _warnings(
    data: Data, table: str, name: str, kind: str, count: int, filled: int, distinct: int
) -> list[str]:
    found = []
    if count and filled == 0:
        return ["empty"]
    if count - filled > 0.2 * count:
        found.append(f"{(count - filled) / count:.0%} missing")
    if distinct == 1 and count > 1:
        found.append("the same value everywhere")
    if kind == "VARCHAR":
        spaces, folded, numbers, dates = data.rows(
            f"SELECT count(*) FILTER ({name} <> trim({name})), count(DISTINCT lower(trim({name}))), "
            f"count(*) FILTER (regexp_matches({name}, $1)), count(*) FILTER (regexp_matches({name}, "
            f"$2)) FROM {table}",
            [NUMBER_IN_TEXT, DATE_IN_TEXT],
        )[0]
        if spaces:
            found.append(f"{spaces} values have spaces around them")
        if folded < distinct:
            found.append(f"{distinct - folded} values differ only in case or spaces")
        if filled and numbers >= 0.8 * filled:
            found.append(
                f"text, but {numbers} of {filled} values look like numbers (or codes with leading zeros)"
            )
        elif filled and dates >= 0.8 * filled:
            found.append(
                f"text, but {dates} of {filled} values look like dates; find out the order of day and month"
            )
    elif is_numeric(kind):
        quartiles = f"SELECT quantile_cont({name}, 0.25), quantile_cont({name}, 0.75) FROM {table}"
        low, high = map(float, data.rows(quartiles)[0])
        far = f"SELECT count(*) FROM {table} WHERE {name} < $1 OR {name} > $2"
        extreme = data.rows(far, [low - 3 * (high - low), high + 3 * (high - low)])[0][0]
        if extreme and high > low:
            found.append(f"{extreme} values lie far outside the middle half ({low:g} to {high:g})")
    return found


def _markdown(profiles: list[dict[str, Any]]) -> str:
    parts = []
    for profile in profiles:
        notes = f" ({'; '.join(profile['notes'])})" if profile["notes"] else ""
        parts.append(f"## {profile['table']}: {profile['rows']} rows from {profile['source']}{notes}\n")
        rows = [
            [
                one["name"], one["type"], one["missing"], one["distinct"], one["min"], one["max"],
                one.get("mean"), one.get("median"),
                ", ".join(f"{value} ({times})" for value, times in one.get("top", [])),
            ]
            for one in profile["columns"]
        ]  # fmt: skip
        heads = ["column", "type", "missing", "distinct", "min", "max", "mean", "median", "most common"]
        parts.append(markdown_table(heads, rows) + "\n")
        if profile["warnings"]:
            parts.append("Look at:\n" + "\n".join(f"- {line}" for line in profile["warnings"]) + "\n")
        if profile["sample"]:
            parts.append(
                markdown_table([one["name"] for one in profile["columns"]], profile["sample"]) + "\n"
            )
    return "\n".join(parts)


if __name__ == "__main__":
    main()
