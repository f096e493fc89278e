#!/usr/bin/env python3
"""Keep the records of a literature review: import, duplicates, screening, counts, flow diagram.

import FILE... --out LIBRARY          add records of RIS, BibTeX, NBIB and CSV files; mark duplicates
batch LIBRARY --round ROUND           print the next undecided records as JSON
apply LIBRARY DECISIONS --round ROUND enter decisions; an exclusion needs a reason
kappa A B                             agreement of two decision files, and the conflicts
status LIBRARY [--flow FILE.svg]      counts for the report; draw the PRISMA flow
export LIBRARY --format bib|md        the included studies
Exit code 0: fine; 1: records are undecided (status) or conflicts exist (kappa); 2: an input is wrong.
"""

import argparse
import csv
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn
from xml.sax.saxutils import escape

from _records import FIELDS, read_records

COLUMNS = ("id", *FIELDS, "source", "duplicate_of", "screen", "screen_reason", "fulltext", "fulltext_reason")
ROUNDS = ("screen", "fulltext")
NOT_RETRIEVED = "not retrieved"
Row = dict[str, str]


def fail(message: str) -> NoReturn:
    """Report a wrong input and exit with code 2."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def load(path: Path) -> list[Row]:
    """Return the rows of a library."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            rows = [{key: row.get(key) or "" for key in COLUMNS} for row in reader]
            missing = set(COLUMNS) - set(reader.fieldnames or ())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        fail(f"{path} cannot be read: {error}; make it with 'library.py import'")
    if missing:
        fail(f"{path} lacks the columns {', '.join(sorted(missing))}; it was not made by 'library.py import'")
    for row in rows:
        for name in ROUNDS:
            if row[name] not in ("", "include", "exclude"):
                fail(f"{path}: {row['id']} has {name} {row[name]!r}; use include, exclude or nothing")
    return rows


def save(path: Path, rows: list[Row]) -> None:
    """Write the library whole, so that an interruption leaves the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.new")
    with draft.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    draft.replace(path)


def title_key(row: Row) -> str:
    """Return the title for comparison: letters and digits only."""
    return re.sub(r"[\W_]+", "", row["title"].lower())


def author_key(row: Row) -> str:
    """Return the first author's family name for comparison."""
    first = row["authors"].split(";")[0].strip().lower()
    return re.sub(r"[\W_]+", "", first.split(",")[0] if "," in first else (first.split() or [""])[-1])


def author_words(row: Row) -> set[str]:
    """Return the words of the first author's name; initials do not count."""
    return {word for word in re.findall(r"\w+", row["authors"].split(";")[0].lower()) if len(word) > 1}


def same_work(one: Row, other: Row) -> bool | None:
    """Return whether two records are one work; None if only a person can tell."""
    if one["doi"] and other["doi"]:
        return one["doi"] == other["doi"]
    if title_key(one) != title_key(other):
        return False
    years = [int(row["year"]) for row in (one, other) if row["year"]]
    is_close = len(years) < 2 or abs(years[0] - years[1]) <= 1
    authors = [author_words(row) for row in (one, other) if row["authors"]]
    is_same_author = len(authors) < 2 or bool(authors[0] & authors[1])
    return True if is_close and is_same_author else None


def mark_duplicates(rows: list[Row]) -> list[tuple[str, str]]:
    """Set `duplicate_of` of new records; return pairs that a person should look at."""
    by_doi: dict[str, Row] = {}
    by_title: dict[str, list[Row]] = {}
    possible = []
    for row in rows:
        if row["duplicate_of"]:
            continue
        candidates = [by_doi[row["doi"]]] if row["doi"] in by_doi else by_title.get(title_key(row), [])
        for other in candidates:
            verdict = same_work(row, other)
            if verdict and not row["screen"]:
                row["duplicate_of"] = other["id"]
                for key in FIELDS:
                    other[key] = other[key] or row[key]
                break
            if verdict is None or (verdict is False and title_key(row) == title_key(other)):
                possible.append((row["id"], other["id"]))
        if not row["duplicate_of"]:
            by_title.setdefault(title_key(row), []).append(row)
            if row["doi"]:
                by_doi.setdefault(row["doi"], row)
    return possible


def import_files(options: argparse.Namespace) -> int:
    """Add the records of files to the library."""
    rows = load(options.out) if options.out.exists() else []
    known = {row["source"] for row in rows}
    files = [path for path in options.files if "*" not in path.name or path.exists()]
    if not files:
        fail(f"no file matches {', '.join(map(str, options.files))}")
    for path in files:
        if path.name in known:
            print(f"{path.name}: imported before, skipped (rename it if it is another export)")
            continue
        try:
            records = read_records(path)
        except (OSError, UnicodeDecodeError, ValueError, csv.Error) as error:
            fail(f"{path} {error}" if isinstance(error, ValueError) else f"{path} cannot be read: {error}")
        for record in records:
            row = dict.fromkeys(COLUMNS, "") | record | {"id": f"R{len(rows) + 1:04}", "source": path.name}
            rows.append(row)
        known.add(path.name)
        print(f"{path.name}: {len(records)} records")
    possible = mark_duplicates(rows)
    save(options.out, rows)
    duplicates = sum(bool(row["duplicate_of"]) for row in rows)
    print(f"{len(rows)} records, {duplicates} duplicates, {len(rows) - duplicates} to screen: {options.out}")
    for one, other in possible:
        print(f"possible duplicate: {one} and {other} (same title, other DOI, year or author)")
    return 0


def open_rows(rows: list[Row], name: str) -> list[Row]:
    """Return the records that the round has to decide and has not."""
    eligible = [row for row in rows if not row["duplicate_of"]]
    if name == "fulltext":
        eligible = [row for row in eligible if row["screen"] == "include"]
    return [row for row in eligible if not row[name]]


def batch(options: argparse.Namespace) -> int:
    """Print the next undecided records."""
    rows = open_rows(load(options.library), options.round)
    shown = [{key: row[key] for key in ("id", *FIELDS) if row[key]} for row in rows[: options.size]]
    print(json.dumps(shown, ensure_ascii=False, indent=1))
    print(f"{len(shown)} of {len(rows)} undecided records", file=sys.stderr)
    return 0


def decisions(path: Path) -> dict[str, dict[str, str]]:
    """Return id → decision of a decision file."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        fail(f"{path} cannot be read: {error}")
    found = {}
    for entry in entries if isinstance(entries, list) else fail(f"{path} must be a list"):
        if (
            not isinstance(entry, dict)
            or entry.get("decision") not in ("include", "exclude")
            or not entry.get("id")
        ):
            fail(f"{path}: {str(entry)[:80]} needs id and decision (include or exclude)")
        if entry["decision"] == "exclude" and not str(entry.get("reason") or "").strip():
            fail(f"{path}: {entry['id']} is excluded without a reason")
        if entry["id"] in found:
            fail(f"{path}: {entry['id']} is decided twice")
        found[entry["id"]] = entry
    return found


def apply(options: argparse.Namespace) -> int:
    """Enter decisions into the library."""
    rows = load(options.library)
    by_id = {row["id"]: row for row in rows}
    may_decide = {row["id"] for row in open_rows(rows, options.round)}
    entries = decisions(options.decisions)
    for name in entries:
        if name not in by_id:
            fail(f"{options.decisions}: there is no record {name}. Nothing was changed")
        if name not in may_decide and not (options.replace and by_id[name][options.round]):
            fail(
                f"{options.decisions}: {name} is a duplicate, was excluded before, or is decided already "
                "(--replace changes a decision). Nothing was changed"
            )
    for name, entry in entries.items():
        reason = str(entry.get("reason") or "").strip() if entry["decision"] == "exclude" else ""
        by_id[name].update({options.round: entry["decision"], f"{options.round}_reason": reason})
    save(options.library, rows)
    print(
        f"{len(entries)} decisions entered, {len(open_rows(rows, options.round))} records left in this round"
    )
    return 0


def kappa(options: argparse.Namespace) -> int:
    """Print Cohen's kappa and the conflicts of two decision files."""
    one, other = decisions(options.one), decisions(options.other)
    both = sorted(one.keys() & other.keys())
    if not both:
        fail("the two files have no record in common")
    pairs = [(one[name]["decision"], other[name]["decision"]) for name in both]
    agreed = sum(a == b for a, b in pairs) / len(pairs)
    shares = [sum(pair[side] == "include" for pair in pairs) / len(pairs) for side in (0, 1)]
    chance = shares[0] * shares[1] + (1 - shares[0]) * (1 - shares[1])
    value = 1.0 if chance == 1 else (agreed - chance) / (1 - chance)
    print(f"{len(both)} records, agreement {agreed:.0%}, kappa {value:.2f}")
    conflicts = [name for name, (a, b) in zip(both, pairs, strict=True) if a != b]
    for name in conflicts:
        print(f"conflict: {name}: {one[name]['decision']} / {other[name]['decision']}")
    for name in sorted(one.keys() ^ other.keys()):
        print(f"only in one file: {name}")
    return 1 if conflicts else 0


def counts(rows: list[Row]) -> dict[str, Any]:
    """Return the numbers of the PRISMA flow."""
    unique = [row for row in rows if not row["duplicate_of"]]
    screened_in = [row for row in unique if row["screen"] == "include"]
    retrieved = [row for row in screened_in if row["fulltext_reason"].lower() != NOT_RETRIEVED]
    excluded = [row for row in retrieved if row["fulltext"] == "exclude"]
    return {
        "identified": len(rows),
        "sources": dict(Counter(row["source"] for row in rows)),
        "duplicates": len(rows) - len(unique),
        "screened": len(unique),
        "excluded_at_screening": sum(row["screen"] == "exclude" for row in unique),
        "sought": len(screened_in),
        "not_retrieved": len(screened_in) - len(retrieved),
        "assessed": len(retrieved),
        "excluded_at_fulltext": dict(Counter(row["fulltext_reason"] for row in excluded).most_common()),
        "included": sum(row["fulltext"] == "include" for row in screened_in),
        "undecided": {name: len(open_rows(rows, name)) for name in ROUNDS},
    }


def flow_svg(numbers: dict[str, Any]) -> str:
    """Return the PRISMA flow diagram as SVG."""
    reasons = [f"{reason} (n = {count})" for reason, count in numbers["excluded_at_fulltext"].items()]
    sources = [f"{name} (n = {count})" for name, count in numbers["sources"].items()]
    left = [
        [f"Records identified (n = {numbers['identified']})", *sources],
        [f"Records screened (n = {numbers['screened']})"],
        [f"Reports sought for retrieval (n = {numbers['sought']})"],
        [f"Reports assessed for eligibility (n = {numbers['assessed']})"],
        [f"Studies included in review (n = {numbers['included']})"],
    ]
    right = [
        [f"Duplicates removed (n = {numbers['duplicates']})"],
        [f"Records excluded (n = {numbers['excluded_at_screening']})"],
        [f"Reports not retrieved (n = {numbers['not_retrieved']})"],
        [f"Reports excluded (n = {sum(numbers['excluded_at_fulltext'].values())})", *reasons],
        [],
    ]
    parts, top = [], 20
    for number, (one, other) in enumerate(zip(left, right, strict=True)):
        height = 22 + 18 * max(len(one), len(other), 1)
        parts += _box(20, top, height, one)
        if other:
            parts += [*_box(420, top, height, other), _arrow(340, top + height / 2, 420, top + height / 2)]
        if number < len(left) - 1:
            parts.append(_arrow(180, top + height, 180, top + height + 36))
        top += height + 36
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{top}" viewBox="0 0 760 {top}" '
        'font-family="sans-serif" font-size="13"><defs>'
        '<marker id="a" markerWidth="8" markerHeight="8" refX="7" refY="3" orient="auto">'
        '<path d="M0,0 L7,3 L0,6 z"/></marker></defs>'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _box(x: int, y: float, height: float, lines: list[str]) -> list[str]:
    shape = f'<rect x="{x}" y="{y}" width="320" height="{height}" fill="#f5f7fa" stroke="#334" rx="3"/>'
    short = [line if len(line) <= 46 else f"{line[:36]}…{line[-9:]}" for line in lines]
    texts = [
        f'<text x="{x + 12}" y="{y + 24 + 18 * number}">{escape(line)}</text>'
        for number, line in enumerate(short)
    ]
    return [shape, *texts]


def _arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="black" marker-end="url(#a)"/>'


def status(options: argparse.Namespace) -> int:
    """Print the counts and draw the flow."""
    numbers = counts(load(options.library))
    print(json.dumps(numbers, ensure_ascii=False, indent=2))
    if options.flow:
        options.flow.parent.mkdir(parents=True, exist_ok=True)
        options.flow.write_text(flow_svg(numbers), encoding="utf-8")
    return 1 if any(numbers["undecided"].values()) else 0


def export(options: argparse.Namespace) -> int:
    """Write the included studies."""
    rows = [row for row in load(options.library) if row["fulltext"] == "include"]
    if not rows:
        fail("no record is included at full text yet")
    if options.format == "bib":
        names = {"authors": "author", "venue": "journal"}
        entries = []
        for row in rows:
            fields = {names.get(key, key): row[key] for key in FIELDS if row[key] and key != "abstract"}
            fields["author"] = fields.get("author", "").replace("; ", " and ")
            body = ",\n".join(f"  {key} = {{{value}}}" for key, value in fields.items() if value)
            entries.append(f"@article{{{author_key(row) or 'anon'}{row['year']}-{row['id']},\n{body}\n}}\n")
        text = "\n".join(entries)
    else:
        lines = ["| Id | Authors | Year | Title | Venue | Link |", "|---|---|---|---|---|---|"]
        for row in rows:
            authors = row["authors"].split(";")
            who = authors[0].strip() + (" et al." if len(authors) > 1 else "")
            cells = [row["id"], who, row["year"], row["title"], row["venue"], row["url"]]
            lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
        text = "\n".join(lines) + "\n"
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text, encoding="utf-8")
    print(
        f"{len(rows)} studies written to {options.out}" if options.out else text,
        end="\n" if options.out else "",
    )
    return 0


def main() -> int:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    names = {
        "import": import_files,
        "batch": batch,
        "apply": apply,
        "kappa": kappa,
        "status": status,
        "export": export,
    }
    made = {name: commands.add_parser(name, help=function.__doc__) for name, function in names.items()}
    for name, function in names.items():
        made[name].set_defaults(run=function)
        if name not in ("import", "kappa"):
            made[name].add_argument("library", type=Path)
        if name in ("batch", "apply"):
            made[name].add_argument("--round", choices=ROUNDS, required=True)
    made["import"].add_argument("files", type=Path, nargs="+", metavar="FILE")
    made["import"].add_argument("--out", type=Path, required=True, metavar="LIBRARY")
    made["batch"].add_argument("--size", type=int, default=25)
    made["apply"].add_argument("decisions", type=Path)
    made["apply"].add_argument("--replace", action="store_true", help="change decisions of this round")
    made["kappa"].add_argument("one", type=Path)
    made["kappa"].add_argument("other", type=Path)
    made["status"].add_argument("--flow", type=Path, metavar="FILE.svg")
    made["export"].add_argument("--format", choices=("bib", "md"), default="md")
    made["export"].add_argument("--out", type=Path, metavar="FILE")
    options = parser.parse_args()
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
