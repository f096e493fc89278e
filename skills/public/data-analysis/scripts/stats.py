"""Computes statistics of a table: describe, groups, compare, correlate, crosstab, trend, outliers."""

import argparse
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from _common import markdown_table, plain, stop
from _distributions import chi_square_upper, f_upper, t_quantile, t_two_sided
from _tables import Data, is_numeric, load, quoted

PERIODS = ("day", "week", "month", "quarter", "year")
MAX_GROUPS = 200
Result = tuple[list[str], list[list[Any]], list[str]]
"""Columns, rows and sentences below them."""


def main() -> None:
    """Compute what the subcommand asks for and print it."""
    options = _parser().parse_args()
    data = load([options.file])
    table = data.table(options.table)
    columns, rows, notes = options.run(data, table, options)
    if options.json:
        records = [{key: plain(value) for key, value in zip(columns, row, strict=True)} for row in rows]
        print(json.dumps({"table": table, "rows": records, "notes": notes}, ensure_ascii=False, indent=1))
    else:
        print("\n".join([markdown_table(columns, rows), *(f"\n{note}" for note in notes)]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, words: str, **arguments: dict[str, Any]) -> None:
        one = commands.add_parser(name, help=words, description=words)
        one.add_argument("file", help="CSV, Excel, SQLite, Parquet or JSON file")
        one.add_argument("--table", help="which table, when the file has several")
        one.add_argument("--json", action="store_true", help="print JSON")
        for argument, settings in arguments.items():
            one.add_argument(f"--{argument}", **settings)
        one.set_defaults(run=run)

    value = {"required": True, "help": "numeric column"}
    by = {"required": True, "help": "column that names the groups"}
    command("describe", describe, "count, mean, spread and quantiles of every numeric column")
    command("groups", groups, "count, sum, mean, median and share per group", value=value, by=by)
    command(
        "compare",
        compare,
        "whether groups differ in a mean: Welch's t-test for two, ANOVA for more",
        value=value,
        by=by,
    )
    command("correlate", correlate, "Pearson and Spearman correlation of all pairs of numeric columns")
    command(
        "crosstab", crosstab, "counts of two categorical columns with a chi-square test",
        rows={"required": True, "help": "column for the rows"},
        columns={"required": True, "help": "column for the columns"},
    )  # fmt: skip
    command(
        "trend", trend, "sum per period with change and growth",
        value=value, date={"required": True, "help": "column of dates"},
        period={"choices": PERIODS, "default": "month", "help": "length of a period (default month)"},
    )  # fmt: skip
    command(
        "outliers", outliers, "rows outside 1.5 interquartile ranges of the middle half",
        value=value, limit={"type": int, "default": 20, "help": "rows to show (default 20)"},
    )  # fmt: skip
    return parser


def describe(data: Data, table: str, options: argparse.Namespace) -> Result:
    """Return one row per numeric column."""
    rows = []
    for name, kind in data.columns(table).items():
        if not is_numeric(kind):
            continue
        column = quoted(name)
        found = data.rows(
            f"SELECT count({column}), count(*) - count({column}), avg({column}), "
            f"stddev_samp({column}), min({column}), "
            f"quantile_cont({column}, 0.25), median({column}), quantile_cont({column}, 0.75), max({column}), "
            f"CASE WHEN count({column}) > 2 AND stddev_pop({column}) > 0 THEN skewness({column}) END "
            f"FROM {quoted(table)}"
        )[0]
        rows.append([name, *found])
    if not rows:
        stop(f"table {table!r} has no numeric column; look at it with inspect_data.py")
    return ["column", "n", "missing", "mean", "sd", "min", "p25", "median", "p75", "max", "skew"], rows, []


def groups(data: Data, table: str, options: argparse.Namespace) -> Result:
    """Return one row per group, the largest sum first."""
    value, by = data.column(table, options.value, numeric=True), data.column(table, options.by)
    rows = data.rows(
        f"SELECT {by}, count({value}), sum({value}), sum({value}) / nullif(sum(sum({value})) OVER (), "
        f"0), avg({value}), "
        f"median({value}), stddev_samp({value}) FROM {quoted(table)} GROUP BY 1 ORDER BY 3 DESC NULLS "
        f"LAST, 1 LIMIT {MAX_GROUPS}"
    )
    notes = [f"only the first {MAX_GROUPS} groups"] if len(rows) == MAX_GROUPS else []
    columns = [options.by, "n", "sum", "share of sum", "mean", "median", "sd"]
    return columns, [list(row) for row in rows], notes


def compare(data: Data, table: str, options: argparse.Namespace) -> Result:
    """Return the groups and whether their means differ."""
    samples = _samples(data, table, options)
    rows = [
        [name, len(values), statistics.fmean(values), statistics.median(values), statistics.stdev(values)]
        for name, values in samples.items()
    ]
    notes = _welch(samples) if len(samples) == 2 else _anova(samples)
    if min(len(values) for values in samples.values()) < 10:
        notes.append("A group has fewer than 10 values: do not lean on the p-value.")
    return [options.by, "n", "mean", "median", "sd"], rows, notes


def _samples(data: Data, table: str, options: argparse.Namespace) -> dict[str, list[float]]:
    value, by = data.column(table, options.value, numeric=True), data.column(table, options.by)
    samples: dict[str, list[float]] = defaultdict(list)
    for name, number in data.rows(
        f"SELECT {by}, {value} FROM {quoted(table)} WHERE {by} IS NOT NULL AND {value} IS NOT NULL "
        "ORDER BY 1, 2"
    ):
        samples[str(name)].append(float(number))
    usable = {name: values for name, values in samples.items() if len(values) > 1}
    if not 2 <= len(usable) <= MAX_GROUPS:
        stop(
            f"column {options.by!r} gives {len(usable)} groups with two values or more; 2 to "
            f"{MAX_GROUPS} are needed"
        )
    if all(statistics.pvariance(values) == 0 for values in usable.values()):
        stop(f"column {options.value!r} does not vary within any group; there is nothing to test")
    return usable


def _welch(samples: dict[str, list[float]]) -> list[str]:
    (a, first), (b, second) = samples.items()
    parts = [statistics.variance(values) / len(values) for values in (first, second)]
    error = math.sqrt(sum(parts))
    difference = statistics.fmean(second) - statistics.fmean(first)
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(values) - 1) for part, values in zip(parts, (first, second), strict=True)
    )
    p = t_two_sided(difference / error, freedom)
    margin = t_quantile(freedom) * error
    n = len(first) + len(second) - 2
    pooled = math.sqrt(
        ((len(first) - 1) * statistics.variance(first) + (len(second) - 1) * statistics.variance(second)) / n
    )
    return [
        f"{b} − {a}: {difference:.4g}, 95 % interval {difference - margin:.4g} to {difference + margin:.4g}",
        (
            f"Welch's t = {difference / error:.3f}, df = {freedom:.1f}, p = {_p(p)}; Cohen's d = "
            f"{difference / pooled:.2f}"
        ),
    ]


def _anova(samples: dict[str, list[float]]) -> list[str]:
    everything = [value for values in samples.values() for value in values]
    mean, count, k = statistics.fmean(everything), len(everything), len(samples)
    between = sum(len(values) * (statistics.fmean(values) - mean) ** 2 for values in samples.values())
    within = sum(statistics.pvariance(values) * len(values) for values in samples.values())
    f = (between / (k - 1)) / (within / (count - k))
    return [
        (
            f"One-way ANOVA: F({k - 1}, {count - k}) = {f:.3f}, p = {_p(f_upper(f, k - 1, count - k))}, "
            f"eta² = {between / (between + within):.3f}"
        )
    ]


def correlate(data: Data, table: str, options: argparse.Namespace) -> Result:
    """Return every pair of numeric columns, the strongest first."""
    names = [name for name, kind in data.columns(table).items() if is_numeric(kind)]
    if len(names) < 2:
        stop(f"table {table!r} has {len(names)} numeric columns; two are needed")
    rows = []
    for a, b in combinations(names, 2):
        pairs = data.rows(
            f"SELECT {quoted(a)}::DOUBLE, {quoted(b)}::DOUBLE FROM {quoted(table)} "
            f"WHERE {quoted(a)} IS NOT NULL AND {quoted(b)} IS NOT NULL"
        )
        first, second = [x for x, _ in pairs], [y for _, y in pairs]
        if len(pairs) < 3 or len(set(first)) == 1 or len(set(second)) == 1:
            continue
        r = statistics.correlation(first, second)
        rank = statistics.correlation(_ranks(first), _ranks(second))
        freedom = len(pairs) - 2
        p = t_two_sided(r * math.sqrt(freedom / (1 - r * r)), freedom) if abs(r) < 1 else 0.0
        rows.append([a, b, len(pairs), r, rank, _p(p)])
    rows.sort(key=lambda row: -abs(row[3]))
    notes = [f"{len(rows)} pairs were tested; expect {0.05 * len(rows):.1f} with p < 0.05 by chance alone."]
    return ["a", "b", "n", "Pearson r", "Spearman rho", "p"], rows, notes


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for index in order[start : end + 1]:
            ranks[index] = (start + end) / 2 + 1
        start = end + 1
    return ranks


def crosstab(data: Data, table: str, options: argparse.Namespace) -> Result:
    """Return counts with row totals and whether the columns are independent."""
    a, b = data.column(table, options.rows), data.column(table, options.columns)
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for row, column, count in data.rows(
        f"SELECT {a}::VARCHAR, {b}::VARCHAR, count(*) FROM {quoted(table)} WHERE {a} IS NOT NULL AND "
        f"{b} IS NOT NULL "
        "GROUP BY ALL ORDER BY 1, 2"
    ):
        counts[row][column] = count
    heads = sorted({column for row in counts.values() for column in row})
    if len(counts) < 2 or len(heads) < 2 or len(counts) * len(heads) > 2000:
        stop(f"{len(counts)} × {len(heads)} different values; a table needs 2 × 2 to 2000 cells")
    totals = {name: sum(row.values()) for name, row in counts.items()}
    below = {head: sum(row.get(head, 0) for row in counts.values()) for head in heads}
    everything = sum(totals.values())
    expected = {(name, head): totals[name] * below[head] / everything for name in counts for head in heads}
    chi = sum((counts[name].get(head, 0) - e) ** 2 / e for (name, head), e in expected.items())
    freedom = (len(counts) - 1) * (len(heads) - 1)
    v = math.sqrt(chi / (everything * min(len(counts) - 1, len(heads) - 1)))
    notes = [
        (
            f"Chi-square = {chi:.3f}, df = {freedom}, p = {_p(chi_square_upper(chi, freedom))}; Cramér's V "
            f"= {v:.2f}"
        )
    ]
    small = sum(e < 5 for e in expected.values())
    if small > 0.2 * len(expected):
        notes.append(
            f"{small} of {len(expected)} expected counts are below 5: join rare values before you trust p."
        )
    rows = [[name, *(row.get(head, 0) for head in heads), totals[name]] for name, row in counts.items()]
    return [options.rows, *heads, "total"], [*rows, ["total", *below.values(), everything]], notes


def trend(data: Data, table: str, options: argparse.Namespace) -> Result:
    """Return the sum per period, empty periods included."""
    value, day = data.column(table, options.value, numeric=True), data.column(table, options.date)
    if data.columns(table)[options.date] not in {"DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"}:
        stop(
            f"column {options.date!r} is no date; convert it with query.py first (see "
            "references/sql-recipes.md)"
        )
    found = data.rows(
        f"WITH p AS (SELECT date_trunc('{options.period}', {day})::DATE AS d, sum({value})::DOUBLE AS "
        f"s FROM {quoted(table)} "
        f"WHERE {day} IS NOT NULL GROUP BY 1), r AS (SELECT unnest(generate_series((SELECT min(d) FROM p), "
        f"(SELECT max(d) FROM p), INTERVAL 1 {options.period}))::DATE AS d) "
        "SELECT r.d, coalesce(p.s, 0) FROM r LEFT JOIN p ON r.d = p.d ORDER BY 1"
    )
    back = {"month": 12, "quarter": 4, "week": 52}.get(options.period)
    rows = []
    for index, (start, total) in enumerate(found):
        before = found[index - 1][1] if index else None
        year = found[index - back][1] if back and index >= back else None
        rows.append([start, total, _growth(total, before), _growth(total, year)])
    notes = []
    if len(found) > 2:
        x = [float(index) for index in range(len(found))]
        y = [total for _, total in found]
        slope, _ = statistics.linear_regression(x, y)
        r = statistics.correlation(x, y) if len(set(y)) > 1 else 0.0
        notes.append(
            f"Straight line: {slope:+.4g} per {options.period}, R² = {r * r:.2f} over {len(found)} periods."
        )
    notes.append("The first and the last period may be incomplete: check the first and the last date.")
    return [options.period, f"sum of {options.value}", "vs. previous", "vs. a year before"], rows, notes


def _growth(now: float, before: float | None) -> str | None:
    return f"{(now - before) / abs(before):+.1%}" if before else None


def outliers(data: Data, table: str, options: argparse.Namespace) -> Result:
    """Return the rows far from the middle half, the farthest first."""
    value = data.column(table, options.value, numeric=True)
    low, high = data.rows(
        f"SELECT quantile_cont({value}, 0.25), quantile_cont({value}, 0.75) FROM {quoted(table)}"
    )[0]
    if low is None:
        stop(f"column {options.value!r} has no values")
    fence = 1.5 * (high - low)
    where = f"FROM {quoted(table)} WHERE {value} < $1 OR {value} > $2"
    limits = [float(low - fence), float(high + fence)]
    total = data.rows(f"SELECT count(*) {where}", limits)[0][0]
    rows = data.rows(
        f"SELECT * {where} ORDER BY abs({value} - {(low + high) / 2}) DESC LIMIT {options.limit}", limits
    )
    note = f"{total} rows lie outside {limits[0]:.4g} to {limits[1]:.4g}; find out why before you drop any."
    return list(data.columns(table)), [list(row) for row in rows], [note]


def _p(p: float) -> str:
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"


if __name__ == "__main__":
    main()
