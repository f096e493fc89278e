"""Checks a report in Markdown: structure, citations, placeholders, pictures, repeated text."""

import argparse
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from _report import Report, picture, plain, read_report

SOURCES = re.compile(r"(?i)^\s*(sources|references|bibliography|来源|参考文献|参考资料)\s*$")
SUMMARY = re.compile(r"(?i)summary|abstract|key (?:points|findings)|摘要|要点|概要")
PLACEHOLDER = re.compile(
    r"(?i)\b(?:todo|tbd|tbc|fixme|xxx+|lorem ipsum)\b|\[(?:insert|your|company)[^\]]*\]|待补充|待定"
)
CITATION = re.compile(r"\[(\d{1,3}(?:\s*[,–-]\s*\d{1,3})*)\](?![(:])")
NUMBER = re.compile(r"\d[\d,.]*\s*(?:%|percent|million|billion|thousand|万|亿|人|元)|[$€£¥]\s?\d")
LONG_PARAGRAPH = 180


def main() -> None:
    """Print the findings as JSON."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("report", type=Path, help="the Markdown file")
    options = arguments.parse_args()
    report = read_report(options.report)
    findings = [*_structure(report), *_citations(report), *_text(report)]
    errors = sum(level == "error" for level, _ in findings)
    body = "".join(_sections(report).values())
    words = len(re.findall(r"[\u3400-\u9fff]|[A-Za-z0-9]+", body))
    print(
        json.dumps(
            {
                "title": report.title,
                "words": words,
                "sections": list(_sections(report)),
                "errors": errors,
                "findings": [{"level": level, "problem": words} for level, words in sorted(findings)],
            },
            ensure_ascii=False,
            indent=1,
        )
    )


def _sections(report: Report) -> dict[str, str]:
    """Return the text of every section by its heading."""
    found: dict[str, str] = {}
    name = ""
    for node in report.tree.children:
        if node.type == "heading":
            name = plain(node)
            found.setdefault(name, "")
        else:
            found[name] = found.get(name, "") + _block_text(node) + "\n"
    return found


def _block_text(node: Any) -> str:
    if node.type == "inline":
        return plain(node) + "\n"
    return "".join(_block_text(child) for child in node.children) or (
        plain(node) if not node.children else ""
    )


def _structure(report: Report) -> list[tuple[str, str]]:
    found = [
        ("warning", f"the front matter has no '{key}'")
        for key in ("title", "date")
        if not report.meta.get(key)
    ]
    headings = [node for node in report.tree.children if node.type == "heading"]
    names = [plain(node) for node in headings]
    level = 1
    for node in headings:
        now = int(node.tag[1])
        if now > level + 1:
            found.append(("error", f"heading {plain(node)!r} jumps from level {level} to {now}"))
        level = now
    found += [
        ("warning", f"heading {name!r} appears {times} times")
        for name, times in Counter(names).items()
        if times > 1
    ]
    children = list(report.tree.children)
    for here, after in zip(children, [*children[1:], None], strict=True):
        if here.type == "heading" and (after is None or (after.type == "heading" and after.tag <= here.tag)):
            found.append(("error", f"section {plain(here)!r} is empty"))
    if not any(SUMMARY.search(name) for name in names[:3]):
        found.append(("warning", "there is no summary at the beginning"))
    return found


def _citations(report: Report) -> list[tuple[str, str]]:
    sections = _sections(report)
    listed = next((text for name, text in sections.items() if SOURCES.match(name)), None)
    body = "\n".join(text for name, text in sections.items() if not SOURCES.match(name))
    cited = {number for match in CITATION.finditer(body) for number in _numbers(match[1])}
    if listed is None:
        return (
            [("error", "citations such as [1] are used, but there is no section 'Sources'")]
            if cited
            else [("warning", "there is no section 'Sources'")]
        )
    known = {
        int(number): words for number, words in re.findall(r"(?m)^\s*\[?(\d{1,3})[\].)]\s*(.+)$", listed)
    }
    if not known:
        items = [line for line in listed.splitlines() if line.strip()]
        known = dict(enumerate(items, 1))
    found = [
        ("error", f"[{number}] is cited but not among the sources") for number in sorted(cited - set(known))
    ]
    found += [
        ("warning", f"source {number} is never cited: {known[number][:60]!r}")
        for number in sorted(set(known) - cited)
    ]
    raw = report.text
    if known and "http" not in raw and not re.search(r"\.(pdf|csv|xlsx|docx|md|txt)\b", raw):
        found.append(("warning", "no source has an address or a file name"))
    for line in body.splitlines():
        if NUMBER.search(line) and not CITATION.search(line) and cited and len(line) > 40:
            found.append(("warning", f"a number without a citation: {line.strip()[:80]!r}"))
    return found


def _numbers(words: str) -> set[int]:
    found = set()
    for part in re.split(r"\s*,\s*", words):
        first, _, last = re.sub(r"\s*[–-]\s*", "-", part).partition("-")
        found |= set(range(int(first), min(int(last or first), int(first) + 50) + 1))
    return found


def _text(report: Report) -> list[tuple[str, str]]:
    found = [("error", f"placeholder {match[0]!r}") for match in PLACEHOLDER.finditer(report.text)]
    for node in report.tree.walk():
        if node.type == "image":
            if picture(report, node) is None:
                found.append(("error", f"picture {node.attrs.get('src')!r} is not a file next to the report"))
            if not node.content:
                found.append(("warning", f"picture {node.attrs.get('src')!r} has no description"))
        if node.type == "paragraph":
            words = plain(node)
            count = len(re.findall(r"[\u3400-\u9fff]|[A-Za-z0-9']+", words))
            if count > LONG_PARAGRAPH * (2 if report.chinese else 1):
                found.append(("warning", f"a paragraph of {count} words: {words[:60]!r}; split it"))
    sentences = [
        one.strip() for one in re.split(r"(?<=[.!?。！？])\s*", " ".join(_sections(report).values()))
    ]
    repeated = Counter(one for one in sentences if len(one) > 50)
    found += [
        ("warning", f"said {times} times: {one[:80]!r}") for one, times in repeated.items() if times > 1
    ]
    return found


if __name__ == "__main__":
    main()
