"""Finds mechanical defects: placeholders, dead cross-references, numbering, terms, dates, amounts."""

import argparse
import calendar
import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from _document import Block, normal, read_blocks

Finding = tuple[str, str, str]
"""Block, rule, what is wrong."""
PLACEHOLDER = re.compile(
    r"(?i)\b(?:TODO|TBD|TBC|XXX+|lorem ipsum)\b|\[\s*(?:[●•_.…]+|insert[^\]]*|date|name|amount)\s*\]"
    r"|_{4,}|待定|待补充|【\s*】"
)
NUMBERED = re.compile(r"^(?:(?:section|clause|article)\s+)?(\d+(?:\.\d+)*)[.)]?\s+\S", re.IGNORECASE)
ARTICLE_ZH = re.compile(r"^第([一二三四五六七八九十百\d]+)条")
REFERENCE = re.compile(r"\b(?:section|clause|article|paragraph)s?\s+(\d+(?:\.\d+)*)", re.IGNORECASE)
REFERENCE_ZH = re.compile(r"(?<!^)第([一二三四五六七八九十百\d]+)条")
LABELLED = re.compile(r"\b(figure|table|annex|appendix|schedule|exhibit)\s+(\d+|[A-Z])\b", re.IGNORECASE)
DEFINITION = re.compile(
    r"\(\s*(?:the |each an? |together,? the |hereinafter )?\"([A-Z][\w &-]{1,40})\"\s*\)"
    r"|^(?:[\d.]+\s+)?\"([A-Z][\w &-]{1,40})\" (?:means|shall mean)"
)
WORDS = {
    name: number
    for number, name in enumerate(
        [
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
            "seventeen",
            "eighteen",
            "nineteen",
            "twenty",
        ]
    )
} | {"thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "ninety": 90, "hundred": 100}
WORD_AND_NUMBER = re.compile(rf"\b({'|'.join(WORDS)})\s*\((\d+)\)", re.IGNORECASE)
MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_name) if name}
DATE = re.compile(
    rf"\b(?:(?P<weekday>{'|'.join(calendar.day_name)}),?\s+)?(?:(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?\s+(?P<m1>{'|'.join(MONTHS)})"
    rf"|(?P<m2>{'|'.join(MONTHS)})\s+(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?),?\s+(?P<y>\d{{4}})\b|\b(?P<iso>\d{{4}}-\d{{2}}-\d{{2}})\b",
    re.IGNORECASE,
)
LONG_SENTENCE = 45


def main() -> None:
    """Print the findings as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("document", type=Path, help=".docx, .pdf, .md or .txt")
    options = parser.parse_args()
    blocks = read_blocks(options.document)
    findings = [
        *_placeholders(blocks),
        *_references(blocks),
        *_numbering(blocks),
        *_terms(blocks),
        *_values(blocks),
        *_language(blocks),
    ]
    report = {
        "document": options.document.name,
        "blocks": len(blocks),
        "by_rule": dict(Counter(rule for _, rule, _ in findings)),
        "findings": [{"block": block, "rule": rule, "problem": words} for block, rule, words in findings],
    }
    print(json.dumps(report, ensure_ascii=False, indent=1))


def _placeholders(blocks: list[Block]) -> Iterator[Finding]:
    for block in blocks:
        for match in PLACEHOLDER.finditer(block.text):
            yield block.id, "placeholder", f"{match[0]!r} was not filled in"


def _references(blocks: list[Block]) -> Iterator[Finding]:
    numbers = {match[1] for block in blocks if (match := NUMBERED.match(block.text))}
    articles = {match[1] for block in blocks if (match := ARTICLE_ZH.match(block.text))}
    labels = {(match[1].lower(), match[2]) for block in blocks if (match := LABELLED.match(block.text))}
    kinds = {kind for kind, _ in labels}
    for block in blocks:
        if numbers:
            for match in REFERENCE.finditer(block.text):
                if match[1] not in numbers and match.start() > 0:
                    yield block.id, "reference", f"{match[0]!r} does not exist"
        if articles:
            for match in REFERENCE_ZH.finditer(block.text):
                if match[1] not in articles:
                    yield block.id, "reference", f"{match[0]} does not exist"
        for match in LABELLED.finditer(block.text):
            if match.start() and match[1].lower() in kinds and (match[1].lower(), match[2]) not in labels:
                yield block.id, "reference", f"{match[0]!r} does not exist"


def _numbering(blocks: list[Block]) -> Iterator[Finding]:
    before: tuple[int, ...] = ()
    seen: set[str] = set()
    for block in blocks:
        match = NUMBERED.match(block.text)
        if not match or len(match[1]) > 8 or (block.kind != "heading" and "." not in match[1]):
            continue
        if match[1] in seen:
            yield block.id, "numbering", f"{match[1]} is used twice"
        seen.add(match[1])
        now = tuple(int(part) for part in match[1].split("."))
        if len(now) == len(before) and now[:-1] == before[:-1] and now[-1] > before[-1] + 1:
            yield (
                block.id,
                "numbering",
                f"{match[1]} follows {'.'.join(map(str, before))}: something is missing",
            )
        before = now


def _terms(blocks: list[Block]) -> Iterator[Finding]:
    defined: dict[str, str] = {}
    for block in blocks:
        for match in DEFINITION.finditer(normal(block.text)):
            term = match[1] or match[2]
            if term in defined:
                yield block.id, "term", f"{term!r} is defined again (first in {defined[term]})"
            defined.setdefault(term, block.id)
    text = "\n".join(normal(block.text) for block in blocks)
    for term, place in defined.items():
        if len(re.findall(rf"\b{re.escape(term)}(?:s|es)?\b", text)) < 2:
            yield place, "term", f"{term!r} is defined but never used"
        if (
            defined
            and (lower := re.search(rf"(?<=[a-z,] ){re.escape(term.lower())}s?\b", text))
            and " " in term
        ):
            yield (
                place,
                "term",
                f"{term!r} is defined, but {lower[0]!r} is written in small letters elsewhere",
            )


def _values(blocks: list[Block]) -> Iterator[Finding]:
    for block in blocks:
        for match in WORD_AND_NUMBER.finditer(block.text):
            if WORDS[match[1].lower()] != int(match[2]):
                yield block.id, "amount", f"{match[0]!r}: word and figure differ"
        for match in DATE.finditer(block.text):
            try:
                day = (
                    date.fromisoformat(match["iso"])
                    if match["iso"]
                    else date(
                        int(match["y"]),
                        MONTHS[(match["m1"] or match["m2"]).lower()],
                        int(match["d1"] or match["d2"]),
                    )
                )
            except ValueError:
                yield block.id, "date", f"{match[0]!r} is no date"
                continue
            name = calendar.day_name[day.weekday()]
            if match["weekday"] and match["weekday"].lower() != name.lower():
                yield block.id, "date", f"{match[0]!r} was a {name}"


def _language(blocks: list[Block]) -> Iterator[Finding]:
    for block in blocks:
        for match in re.finditer(r"\b([A-Za-z]{2,})\s+\1\b", block.text):
            if match[1].lower() not in {"that", "had"}:
                yield block.id, "repetition", f"{match[0]!r} stands twice"
        for opening, closing in ("()", "[]", "（）", "“”"):
            if block.text.count(opening) != block.text.count(closing) and not re.match(
                r"\(?\w{1,3}\)", block.text
            ):
                yield block.id, "brackets", f"{opening}{closing} do not match"
        for sentence in re.split(r"(?<=[.!?;])\s+", block.text):
            words = len(sentence.split())
            if words > LONG_SENTENCE and block.kind == "paragraph":
                yield block.id, "long sentence", f"{words} words: {sentence[:60]!r}"


if __name__ == "__main__":
    main()
