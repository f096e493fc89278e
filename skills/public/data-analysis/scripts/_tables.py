"""Loads data files as tables of an in-memory DuckDB, with types that keep what the file says.

Values are read as text first. A column becomes a number or a date only if every value fits and none
would lose something (an identifier such as 00123 stays text).
"""

import csv
import itertools
import re
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from _common import stop, stop_missing

try:
    import duckdb
except ImportError:
    stop_missing("duckdb")
try:
    import openpyxl
    import openpyxl.styles
    import openpyxl.utils
except ImportError:
    stop_missing("openpyxl")

CSV_SUFFIXES = {".csv", ".tsv", ".txt", ".tab"}
JSON_SUFFIXES = {".json", ".jsonl", ".ndjson"}
EXCEL_SUFFIXES = {".xlsx", ".xlsm"}
SQLITE_SUFFIXES = {".db", ".sqlite", ".sqlite3", ".db3"}
KNOWN = {*CSV_SUFFIXES, *JSON_SUFFIXES, *EXCEL_SUFFIXES, *SQLITE_SUFFIXES, ".parquet", ".pq"}
NULL_WORDS = ("", "NA", "N/A", "#N/A", "NULL", "null", "NaN", "nan", "None")
HEADER_ROWS = 20
ENCODINGS = ("utf-8-sig", "gb18030", "cp1252", "latin-1")
CASTS = (
    ("BIGINT", r"[+-]?[0-9]{1,18}"),
    ("DOUBLE", r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"),
    ("BOOLEAN", r"(?i)true|false"),
    ("DATE", r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    ("TIMESTAMP", r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?"),
)


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the database and where it came from."""

    name: str
    source: str
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Data:
    """A database with the tables of the given files."""

    database: "duckdb.DuckDBPyConnection"
    tables: list[Table] = field(default_factory=list)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return self.database.execute(sql, list(values)).fetchall()

    def columns(self, table: str) -> dict[str, str]:
        """Return the columns of a table with their types."""
        return {name: kind for name, kind, *_ in self.rows(f"DESCRIBE {quoted(table)}")}

    def table(self, name: str | None) -> str:
        """Return the table that is meant; the only one needs no name."""
        names = [table.name for table in self.tables]
        if name is None:
            if len(names) == 1:
                return names[0]
            stop(f"the data has {len(names)} tables ({', '.join(names)}); choose one with --table")
        if name not in names:
            stop(f"there is no table {name!r}; the tables are {', '.join(names)}")
        return name

    def column(self, table: str, name: str, *, numeric: bool = False) -> str:
        """Return the quoted column `name` of `table`; stop when there is none or it is no number."""
        columns = self.columns(table)
        if name not in columns:
            stop(f"table {table!r} has no column {name!r}; it has {', '.join(columns)}")
        if numeric and not is_numeric(columns[name]):
            stop(
                f"column {name!r} of {table!r} is {columns[name]}, not a number; "
                "clean it with query.py first (see references/sql-recipes.md)"
            )
        return quoted(name)


def quoted(name: str) -> str:
    """Return an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def is_numeric(kind: str) -> bool:
    """Say whether an SQL type holds numbers."""
    return kind.split("(")[0] in {
        "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
        "FLOAT", "DOUBLE", "DECIMAL",
    }  # fmt: skip


def load(files: Iterable[str]) -> Data:
    """Return a database with every table of `files`; stop on a file that cannot be read."""
    database = duckdb.connect(":memory:", config={"autoinstall_known_extensions": False})
    data = Data(database)
    for name in files:
        path = Path(name)
        if not path.is_file():
            stop(f"{name} is not a file")
        if path.stat().st_size == 0:
            stop(f"{name} is empty")
        if path.suffix.lower() not in KNOWN:
            stop(f"{name} is of no known kind; known are {', '.join(sorted(KNOWN))}")
        try:
            _load_file(data, path)
        except (duckdb.Error, sqlite3.Error, OSError, ValueError, KeyError, BadZipFile) as error:
            stop(f"{name} cannot be read: {' '.join(str(error).split())[:400]}")
    return data


def _load_file(data: Data, path: Path) -> None:
    suffix = path.suffix.lower()
    if suffix in EXCEL_SUFFIXES:
        _load_excel(data, path)
    elif suffix in SQLITE_SUFFIXES:
        _load_sqlite(data, path)
    elif suffix in CSV_SUFFIXES:
        _load_csv(data, path)
    else:
        name = _new_name(data, path.stem)
        reader = "read_json_auto" if suffix in JSON_SUFFIXES else "read_parquet"
        data.database.execute(f"CREATE TABLE {quoted(name)} AS SELECT * FROM {reader}({_literal(path)})")
        data.tables.append(Table(name, path.name))


def _load_csv(data: Data, path: Path) -> None:
    notes: tuple[str, ...] = ()
    encoding = _encoding(path)
    with tempfile.TemporaryDirectory() as folder:
        source = path
        if encoding != "utf-8-sig":
            source = Path(folder) / "utf8.csv"
            source.write_text(path.read_text(encoding=encoding), encoding="utf-8")
            notes = (f"encoding {encoding}",)
        _import(data, _new_name(data, path.stem), path.name, source, notes)


def _import(data: Data, name: str, source: str, file: Path, notes: tuple[str, ...]) -> None:
    """Create a table from a CSV file as text, then give each column the type that all its values have."""
    nulls = "[" + ", ".join(f"'{word}'" for word in NULL_WORDS) + "]"
    data.database.execute(
        f"CREATE TABLE {quoted(name)} AS SELECT * FROM read_csv({_literal(file)}, header=true, "
        "all_varchar=true, "
        f"nullstr={nulls}, null_padding=true, sample_size=-1)"
    )
    columns = data.columns(name)
    chosen = {column: _type_of(data, name, column) for column in columns}
    casts = ", ".join(
        f"CAST(trim({quoted(column)}) AS {kind}) AS {quoted(column)}" if kind != "VARCHAR" else quoted(column)
        for column, kind in chosen.items()
    )
    data.database.execute(f"CREATE OR REPLACE TABLE {quoted(name)} AS SELECT {casts} FROM {quoted(name)}")
    data.tables.append(Table(name, source, notes))


def _type_of(data: Data, table: str, column: str) -> str:
    text = f"trim({quoted(column)})"
    checks = ", ".join(
        f"bool_and(regexp_full_match({text}, '{pattern}') AND TRY_CAST({text} AS {kind}) IS NOT NULL)"
        for kind, pattern in CASTS
    )
    zeros = f"bool_or(regexp_full_match({text}, '[+-]?0[0-9]+'))"
    found = data.rows(f"SELECT {zeros}, {checks} FROM {quoted(table)} WHERE {quoted(column)} IS NOT NULL")[0]
    leading_zero, *fits = found
    for (kind, _), fit in zip(CASTS, fits, strict=True):
        if fit and not (leading_zero and kind in {"BIGINT", "DOUBLE"}):
            return kind
    return "VARCHAR"


def _load_excel(data: Data, path: Path) -> None:
    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    try:
        sheets = [(sheet.title, sheet.iter_rows(values_only=True)) for sheet in book.worksheets]
        for title, rows in sheets:
            name = path.stem if len(sheets) == 1 else f"{path.stem}_{title}"
            _load_rows(data, name, f"{path.name}, sheet {title}", rows)
    finally:
        book.close()
    if not data.tables:
        stop(f"{path} has no sheet with a table")


def _load_rows(data: Data, name: str, source: str, rows: Iterator[tuple[Any, ...]]) -> None:
    first = list(itertools.islice(rows, HEADER_ROWS))
    widths = [sum(value is not None for value in row) for row in first]
    if not widths or max(widths) == 0:
        return
    # Titles above a table fill fewer cells than its header.
    header = next(index for index, width in enumerate(widths) if width >= 0.6 * max(widths))
    keep = [index for index, value in enumerate(first[header]) if value is not None]
    notes = (f"header in row {header + 1}",) if header else ()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sheet.csv"
        with file.open("w", encoding="utf-8", newline="") as out:
            writer = csv.writer(out, quoting=csv.QUOTE_ALL)
            writer.writerow(_distinct(str(first[header][index]).strip() for index in keep))
            for row in itertools.chain(first[header + 1 :], rows):
                values = [_text(row[index]) if index < len(row) else "" for index in keep]
                if any(values):
                    writer.writerow(values)
        _import(data, _new_name(data, name), source, file, notes)


def _load_sqlite(data: Data, path: Path) -> None:
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as source:
        found = source.execute(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE "
            "'sqlite_%' ORDER BY name"
        ).fetchall()
        if not found:
            stop(f"{path} has no tables")
        for (table,) in found:
            cursor = source.execute(f"SELECT * FROM {quoted(table)}")
            rows = itertools.chain([tuple(column[0] for column in cursor.description)], cursor)
            _load_rows(data, table, f"{path.name}, table {table}", rows)


def _distinct(names: Iterable[str]) -> list[str]:
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return result


def _text(value: Any) -> str:
    if value is None:
        return ""
    if hasattr(value, "isoformat"):
        text: str = (
            value.isoformat(sep=" ")
            if hasattr(value, "hour") and hasattr(value, "year")
            else value.isoformat()
        )
        return text.removesuffix(" 00:00:00")
    return value.hex() if isinstance(value, bytes) else str(value)


def _new_name(data: Data, wanted: str) -> str:
    name = re.sub(r"\W+", "_", wanted.lower()).strip("_") or "data"
    name = f"t_{name}" if name[0].isdigit() else name
    taken = {table.name for table in data.tables}
    return next(
        candidate
        for candidate in itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
        if candidate not in taken
    )


def _encoding(path: Path) -> str:
    raw = path.read_bytes()
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    for encoding in ENCODINGS:
        try:
            raw.decode(encoding)
        except UnicodeDecodeError:
            continue
        return encoding
    return "latin-1"


def _literal(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
