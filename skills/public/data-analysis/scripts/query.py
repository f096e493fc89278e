"""Runs SQL (DuckDB) over data files and prints the result as a table or writes it to a file."""

import argparse
import csv
import json
from pathlib import Path
from typing import Any

from _common import markdown_table, plain, stop
from _tables import Data, duckdb, load, openpyxl

OUTPUTS = (".csv", ".json", ".md", ".parquet", ".xlsx")


def main() -> None:
    """Run the query."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "files", nargs="+", help="CSV, TSV, Excel, SQLite, Parquet or JSON files; each gives tables"
    )
    parser.add_argument(
        "--sql", required=True, help="the query, or @file.sql; several statements with ; are fine"
    )
    parser.add_argument("--out", type=Path, help=f"write all rows here: {', '.join(OUTPUTS)}")
    parser.add_argument("--limit", type=int, default=50, help="rows to print (default 50)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a Markdown table")
    options = parser.parse_args()
    if options.out and options.out.suffix.lower() not in OUTPUTS:
        stop(f"--out must end in one of {', '.join(OUTPUTS)}, not {options.out.name!r}")

    data = load(options.files)
    result, rows = _run(data, _sql(options.sql))
    columns = result.columns
    if options.out:
        _write(options.out, result, rows)
    shown = rows[: options.limit]
    if options.json:
        values = [[plain(value) for value in row] for row in shown]
        print(json.dumps({"columns": columns, "rows": values, "total": len(rows)}, ensure_ascii=False))
        return
    print(markdown_table(columns, shown))
    if len(rows) > len(shown):
        print(f"\n{len(shown)} of {len(rows)} rows are shown; --limit or --out gives the others")
    if options.out:
        print(f"\n{len(rows)} rows written to {options.out}")


def _sql(given: str) -> str:
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8")
    except OSError as error:
        stop(f"{given[1:]} cannot be read: {error.strerror}")


def _run(data: Data, sql: str) -> "tuple[duckdb.DuckDBPyRelation, list[tuple[Any, ...]]]":
    try:
        result = data.database.sql(sql)
        if result is None:
            stop("the last statement of --sql returns no rows; end with a SELECT")
        return result, result.fetchall()
    except duckdb.Error as error:
        tables = "; ".join(f"{table.name}({', '.join(data.columns(table.name))})" for table in data.tables)
        stop(f"{str(error).strip()[:800]}\nThe tables are: {tables}")


def _write(path: Path, result: "duckdb.DuckDBPyRelation", rows: list[tuple[Any, ...]]) -> None:
    columns = result.columns
    path.parent.mkdir(parents=True, exist_ok=True)
    values = [[plain(value) for value in row] for row in rows]
    match path.suffix.lower():
        case ".csv":
            with path.open("w", encoding="utf-8-sig", newline="") as out:
                csv.writer(out).writerows([columns, *values])
        case ".json":
            records = [dict(zip(columns, row, strict=True)) for row in values]
            path.write_text(json.dumps(records, ensure_ascii=False, indent=1), encoding="utf-8")
        case ".md":
            path.write_text(markdown_table(columns, rows) + "\n", encoding="utf-8")
        case ".xlsx":
            _write_excel(path, columns, rows)
        case _:
            result.write_parquet(str(path))


def _write_excel(path: Path, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "result"
    for row in [columns, *rows]:
        sheet.append(
            [value if isinstance(value, int | float | str | None) else _excel(value) for value in row]
        )
    for cell in sheet[1]:
        cell.font = openpyxl.styles.Font(bold=True)
    sheet.freeze_panes = "A2"
    sheet.auto_filter.ref = sheet.dimensions
    for index, column in enumerate(columns):
        longest = max([len(column), *(len(str(row[index])) for row in rows[:200])])
        sheet.column_dimensions[openpyxl.utils.get_column_letter(index + 1)].width = min(longest + 3, 50)
    book.save(path)


def _excel(value: Any) -> Any:
    return value if hasattr(value, "isoformat") and getattr(value, "tzinfo", None) is None else plain(value)


if __name__ == "__main__":
    main()
