"""The scripts of `data-analysis` on real files: profiles, SQL, statistics, results that open again."""

import json
import sqlite3
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import openpyxl
import pytest

SKILL = "data-analysis"


@pytest.fixture
def sales(tmp_path: Path, public_skills: Path) -> Path:
    file = tmp_path / "Sales 2024.csv"
    file.write_bytes((public_skills / SKILL / "evals/files/sales.csv").read_bytes())
    return file


def _profile(run_script: Any, *files: Path) -> dict[str, Any]:
    profiles = json.loads(run_script(SKILL, "inspect_data.py", *files, "--json"))
    return {profile["table"]: profile for profile in profiles}


def test_a_csv_is_profiled_with_safe_types_and_warnings(sales: Path, run_script: Any) -> None:
    table = _profile(run_script, sales)["sales_2024"]
    columns = {column["name"]: column for column in table["columns"]}

    assert table["rows"] == 8
    assert {name: columns[name]["type"] for name in ("amount", "units", "date", "zip")} == {
        "amount": "DOUBLE",
        "units": "BIGINT",
        "date": "DATE",
        "zip": "VARCHAR",  # 00123 would lose its zeros as a number
    }
    assert columns["discount"]["missing"] == 2
    assert "region: 1 values differ only in case or spaces" in table["warnings"]
    assert any(line.startswith("amount: 1 values lie far outside") for line in table["warnings"])


def test_a_csv_in_a_chinese_encoding_with_semicolons_is_read(tmp_path: Path, run_script: Any) -> None:
    file = tmp_path / "订单.csv"
    file.write_bytes("客户;金额\n张三;12.5\n李四;7.5\n".encode("gb18030"))

    shown = run_script(SKILL, "query.py", file, "--sql", 'SELECT sum("金额") AS total FROM "订单"')

    assert "| 20 |" in shown


def test_short_column_names_and_european_numbers_are_no_trouble(tmp_path: Path, run_script: Any) -> None:
    (tmp_path / "t.csv").write_text("a;b;n;d;s;price\n1;2;x;2024-01-01;5;1,50\n3;4;x;2024-02-01;6;2,75\n")

    profile = _profile(run_script, tmp_path / "t.csv")["t"]
    trend = json.loads(
        run_script(SKILL, "stats.py", "trend", "t.csv", "--value", "s", "--date", "d", "--json")
    )

    assert [column["type"] for column in profile["columns"]] == [
        "BIGINT",
        "BIGINT",
        "VARCHAR",
        "DATE",
        "BIGINT",
        "VARCHAR",
    ]
    assert any(
        line.startswith("price: text, but 2 of 2 values look like numbers") for line in profile["warnings"]
    )
    assert [row["sum of s"] for row in trend["rows"]] == [5.0, 6.0]


def test_excel_sheets_with_a_title_and_sqlite_tables_become_tables(tmp_path: Path, run_script: Any) -> None:
    book = openpyxl.Workbook()
    people = book.active
    people.title = "People"
    for row in (
        ["Report of the year"],
        [],
        ["id", "name", "born"],
        [1, "Ann", date(1990, 2, 1)],
        [2, "Bo", None],
    ):
        people.append(row)
    book.create_sheet("Empty")
    other = book.create_sheet("Cities")
    for row in (["id", "city"], [1, "Oslo"], [2, "Lima"]):
        other.append(row)
    book.save(tmp_path / "staff.xlsx")
    with closing(sqlite3.connect(tmp_path / "pay.db")) as database, database:
        database.execute("CREATE TABLE salary (id INTEGER, pay REAL)")
        database.executemany("INSERT INTO salary VALUES (?, ?)", [(1, 100.0), (2, 250.5)])

    tables = _profile(run_script, tmp_path / "staff.xlsx", tmp_path / "pay.db")
    joined = run_script(
        SKILL, "query.py", tmp_path / "staff.xlsx", tmp_path / "pay.db", "--json",
        "--sql", "FROM staff_people JOIN staff_cities USING (id) JOIN salary USING (id) ORDER BY id",
    )  # fmt: skip

    assert set(tables) == {"staff_people", "staff_cities", "salary"}
    assert tables["staff_people"]["notes"] == ["header in row 3"]
    assert [column["type"] for column in tables["staff_people"]["columns"]] == ["BIGINT", "VARCHAR", "DATE"]
    assert json.loads(joined)["rows"] == [
        [1, "Ann", "1990-02-01", "Oslo", 100.0],
        [2, "Bo", None, "Lima", 250.5],
    ]


@pytest.mark.parametrize("suffix", ["csv", "xlsx", "parquet", "json"])
def test_a_result_file_holds_the_rows_and_is_read_again(
    sales: Path, tmp_path: Path, run_script: Any, suffix: str
) -> None:
    out = tmp_path / "outputs" / f"totals.{suffix}"
    sql = (
        "SELECT trim(region) AS region, sum(amount) AS total, max(date) AS last FROM sales_2024 "
        "GROUP BY ALL ORDER BY total DESC"
    )

    shown = run_script(SKILL, "query.py", sales, "--sql", sql, "--out", out, "--limit", 1)
    again = json.loads(
        run_script(SKILL, "query.py", out, "--json", "--sql", "SELECT * FROM totals ORDER BY total DESC")
    )

    assert "1 of 3 rows are shown" in shown
    assert again["rows"] == [
        ["East", 5095.25, "2024-05-02"],
        ["North", 471.25, "2024-03-21"],
        ["South", 210.1, "2024-05-15"],
    ]


def test_statistics_agree_with_known_values(sales: Path, tmp_path: Path, run_script: Any) -> None:
    def rows(command: str, *arguments: str) -> tuple[list[dict[str, Any]], str]:
        result = json.loads(run_script(SKILL, "stats.py", command, sales, "--json", *arguments))
        return result["rows"], " ".join(result["notes"])

    described = {row["column"]: row for row in rows("describe")[0]}
    assert described["units"]["mean"] == 3.125
    assert described["discount"]["missing"] == 2

    shares, _ = rows("groups", "--value", "amount", "--by", "channel")
    assert [round(row["share of sum"], 4) for row in shares] == [0.9314, 0.0686]

    _, said = rows("compare", "--value", "amount", "--by", "channel")
    assert "t = -1.022, df = 3.0, p = 0.3818" in said
    assert "fewer than 10" in said
    _, said = rows("compare", "--value", "amount", "--by", "region")
    assert "F(2, 4) = 1.417" in said

    pairs, _ = rows("correlate")
    assert (pairs[0]["a"], pairs[0]["b"], round(pairs[0]["Pearson r"], 3)) == ("amount", "discount", 0.816)

    counts, said = rows("crosstab", "--rows", "channel", "--columns", "zip")
    assert counts[-1]["total"] == 8
    assert "df = 2" in said

    months, _ = rows("trend", "--value", "amount", "--date", "date")
    assert [row["sum of amount"] for row in months] == [200.5, 295.25, 210.75, 0.0, 5070.1]  # April is empty
    assert months[1]["vs. previous"] == "+47.3%"

    far, said = rows("outliers", "--value", "amount")
    assert [row["order_id"] for row in far] == [7]
    assert said.startswith("1 rows lie outside")


def test_what_is_wrong_is_said_with_what_there_is(sales: Path, tmp_path: Path, run_script: Any) -> None:
    (tmp_path / "broken.xlsx").write_text("no workbook")
    (tmp_path / "notes.docx").write_text("x")
    (tmp_path / "empty.csv").touch()

    for arguments, words in (
        (["inspect_data.py", tmp_path / "none.csv"], "none.csv is not a file"),
        (["inspect_data.py", tmp_path / "notes.docx"], "of no known kind"),
        (["inspect_data.py", tmp_path / "empty.csv"], "empty.csv is empty"),
        (["inspect_data.py", tmp_path / "broken.xlsx"], "cannot be read"),
        (["query.py", sales, "--sql", "SELECT amout FROM sales_2024"], "sales_2024(order_id, region"),
        (["query.py", sales, "--sql", "SELECT 1", "--out", "a.doc"], "--out must end in"),
        (["stats.py", "groups", sales, "--value", "region", "--by", "channel"], "not a number"),
        (["stats.py", "groups", sales, "--value", "price", "--by", "channel"], "has no column 'price'"),
        (["stats.py", "trend", sales, "--value", "amount", "--date", "region"], "is no date"),
        (["stats.py", "describe", sales, "--table", "x"], "there is no table 'x'"),
    ):
        said = run_script(SKILL, *arguments, code=2)
        assert said.startswith("error: ")
        assert words in said
