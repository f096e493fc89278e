"""Reads bibliographic records from RIS, BibTeX, NBIB (PubMed) and CSV; used by library.py."""

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

FIELDS = ("title", "authors", "year", "venue", "doi", "url", "abstract")
RIS = {
    "TI": "title", "T1": "title", "AU": "authors", "A1": "authors", "PY": "year", "Y1": "year", "DA": "year",
    "JO": "venue", "JF": "venue", "T2": "venue", "DO": "doi", "UR": "url", "AB": "abstract", "N2": "abstract",
}  # fmt: skip
NBIB = {
    "TI": "title", "FAU": "authors", "AU": "authors", "DP": "year", "JT": "venue", "TA": "venue",
    "AB": "abstract",
}  # fmt: skip
BIB = {
    "title": "title", "author": "authors", "year": "year", "date": "year", "journal": "venue", "doi": "doi",
    "journaltitle": "venue", "booktitle": "venue", "url": "url", "abstract": "abstract",
}  # fmt: skip
Record = dict[str, str]


def read_records(path: Path) -> list[Record]:
    """Return the records of a file; raise ValueError if its kind is unknown or it has none."""
    text = path.read_text(encoding="utf-8-sig")
    kind = path.suffix.lower()
    if kind in (".ris", ".txt") and re.search(r"^TY  - ", text, re.M):
        found = list(_tagged(text, re.compile(r"^([A-Z][A-Z0-9])  - ?(.*)$"), RIS, end="ER"))
    elif kind in (".nbib", ".txt") and re.search(r"^PMID- ", text, re.M):
        found = list(_tagged(text, re.compile(r"^([A-Z]{2,4}) *- (.*)$"), NBIB, start="PMID"))
    elif kind == ".bib":
        found = list(_bibtex(text))
    elif kind == ".csv":
        found = list(_table(text))
    else:
        raise ValueError("is not RIS, NBIB, BibTeX or CSV; export it again in one of these")
    found = [_tidy(record) for record in found if record.get("title", "").strip()]
    if not found:
        raise ValueError("has no records with a title")
    return found


def _tagged(
    text: str, line_form: re.Pattern[str], keys: dict[str, str], start: str = "", end: str = ""
) -> Iterator[Record]:
    record: Record = {}
    key = ""
    for line in [*text.splitlines(), f"{end}  - " if end else f"{start}- "]:
        match = line_form.match(line)
        if match is None:
            if key and line.strip():
                record[key] += f" {line.strip()}"
            continue
        tag, value = match[1], match[2].strip()
        if tag == (end or start):
            if record:
                yield record
            record, key = (
                ({"url": f"https://pubmed.ncbi.nlm.nih.gov/{value}/"} if start and value else {}),
                "",
            )
            continue
        if tag in ("LID", "AID") and "[doi]" in value:
            record["doi"] = value.replace("[doi]", "").strip()
        key = keys.get(tag, "")
        if key == "authors" and record.get("authors"):
            if tag != "AU" or start == "":
                record["authors"] += f"; {value}"
            else:
                key = ""  # NBIB has each author twice: FAU and AU
        elif key and record.get(key):
            key = ""
        elif key:
            record[key] = value


def _bibtex(text: str) -> Iterator[Record]:
    for match in re.finditer(r"@(\w+)\s*\{", text):
        if match[1].lower() in ("comment", "string", "preamble"):
            continue
        entry = _balanced(text, match.end())
        record: Record = {}
        for name, value in _bib_fields(entry):
            key = BIB.get(name.lower())
            if key and not record.get(key):
                plain = re.sub(r"\\[\"'`^~=.]\s*\{?(\w)\}?", r"\1", value)
                plain = re.sub(r"[{}]|\\(?=[&%_#$])", "", plain)
                record[key] = re.sub(r"\s+and\s+", "; ", plain) if key == "authors" else plain
        yield record


def _balanced(text: str, start: int) -> str:
    depth = 1
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start:position]
    return text[start:]


def _bib_fields(entry: str) -> Iterator[tuple[str, str]]:
    position = 0
    while match := re.compile(r"(\w+)\s*=\s*").search(entry, position):
        begin = match.end()
        if entry[begin : begin + 1] == "{":
            value = _balanced(entry, begin + 1)
            position = begin + len(value) + 2
        elif entry[begin : begin + 1] == '"':
            end = entry.find('"', begin + 1)
            value = entry[begin + 1 : end if end > 0 else len(entry)]
            position = begin + len(value) + 2
        else:
            value = re.match(r"[^,\s}]*", entry[begin:])[0]  # type: ignore[index]
            position = begin + max(len(value), 1)
        yield match[1], value


def _table(text: str) -> Iterator[Record]:
    names = {"author": "authors", "journal": "venue", "publication year": "year", "source title": "venue",
             "article title": "title", "publication title": "venue", "abstract note": "abstract"}  # fmt: skip
    reader = csv.DictReader(io.StringIO(text))
    for row in reader:
        record: Record = {}
        for name, value in row.items():
            key = (name or "").strip().lower()
            key = names.get(key, key)
            if key in FIELDS and isinstance(value, str) and value.strip() and not record.get(key):
                record[key] = value
        yield record


def _tidy(record: Record) -> Record:
    tidy = {key: " ".join(record.get(key, "").split()) for key in FIELDS}
    year = re.search(r"\b(1[89]|20)\d\d\b", tidy["year"])
    tidy["year"] = year[0] if year else ""
    tidy["doi"] = (
        re.sub(r"^(https?://(dx\.)?doi\.org/|doi:\s*)", "", tidy["doi"], flags=re.I).lower().rstrip(".")
    )
    tidy["title"] = tidy["title"].rstrip(".")
    if tidy["doi"] and not tidy["url"]:
        tidy["url"] = f"https://doi.org/{tidy['doi']}"
    return tidy
