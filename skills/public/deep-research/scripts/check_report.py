#!/usr/bin/env python3
"""Check a report's citations against the source ledgers.

Errors: a citation that is malformed, unknown to the ledgers or never opened; no citation at all; no source
list; a cited page that the source list leaves out. Warnings: sentences with numbers but no citation, sections
without citations, one publisher behind more than half of the citations, ledger sources that are not cited.
Exit code 0: no errors; 1: errors (with --strict also warnings); 2: an input is wrong.
"""

import argparse
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from _ledger import host_of, normal_url, read_sources, read_text

URL = r"\(((?:[^()\s]|\([^()\s]*\))*)\)"
CITATION = re.compile(rf"\[citation:([^\]]*)\](?:{URL})?")
LINK = re.compile(rf"\[(?!citation:)([^\]]+)\]{URL}")
SOURCES_HEADING = re.compile(
    r"^#{1,6}\s*(\d+\.?\s*)?(sources|references|来源|参考资料|参考文献)\b.*$", re.I | re.M
)
SKIPPED_SECTIONS = re.compile(
    r"scope|coverage|method|what this means|unverified|summary|范围|覆盖|方法|结论|摘要", re.I
)
NUMBER = re.compile(r"\d+([.,]\d+)?\s?(%|percent|million|billion|trillion|USD|EUR|美元|亿|万|倍)|[$€£¥]\s?\d")
SENTENCE = re.compile(r"(?<=[.!?。！？])(?:\s+|(?=[\u4e00-\u9fff]))(?!\[citation:)")
INFERENCE = re.compile(r"this suggests|we estimate|our estimate|this implies|这表明|据此推断|我们估计", re.I)
CODE = re.compile(r"^```.*?^```[^\n]*$", re.M | re.S)


def split_report(text: str) -> tuple[str, str]:
    """Return the body and the source list, which is empty if there is none."""
    headings = list(SOURCES_HEADING.finditer(text))
    return (text[: headings[-1].start()], text[headings[-1].end() :]) if headings else (text, "")


def citation_errors(text: str, ledger: dict[str, dict[str, Any]] | None) -> list[str]:
    """Return what is wrong with single citations."""
    found = []
    for match in CITATION.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        title, url = match[1].strip(), match[2]
        if not title or not url:
            found.append(f"line {line}: {match[0]!r} must be [citation:Title](URL)")
        elif ledger is not None and (source := ledger.get(normal_url(url))) is None:
            found.append(
                f"line {line}: {url} is not in the source ledgers; open it and record it, or remove it"
            )
        elif ledger is not None and source.get("opened", False) is not True:
            found.append(f"line {line}: {url} was never opened (opened is not true)")
    return found


def list_errors(listed: str, cited: list[str]) -> list[str]:
    """Return what is wrong with the source list at the end."""
    if not listed.strip():
        return ["the report has no source list; end with '## Sources' and '- [Title](URL) - what it gave'"]
    known = {normal_url(match[2]) for match in LINK.finditer(listed)}
    missing = dict.fromkeys(url for url in cited if normal_url(url) not in known)
    return [f"{url} is cited but not in the source list" for url in missing]


def text_warnings(body: str) -> list[str]:
    """Return sentences with numbers and whole sections that have no citation."""
    warnings = []
    sections = re.split(r"^(#{1,6}\s+.*)$", body, flags=re.M)
    for heading, content in zip(["", *sections[1::2]], sections[::2], strict=True):
        name = heading.lstrip("# ").strip()
        if SKIPPED_SECTIONS.search(name):
            continue
        prose = "\n".join(line for line in content.splitlines() if not line.lstrip().startswith("|"))
        if len(prose.split()) + len(re.findall(r"[\u4e00-\u9fff]", prose)) > 60 and "[citation:" not in prose:
            warnings.append(f"section '{name or 'beginning'}' has no citation")
        for sentence in SENTENCE.split(" ".join(prose.split())):
            has_source = "[citation:" in sentence or INFERENCE.search(sentence)
            if NUMBER.search(sentence) and not has_source:
                warnings.append(f"number without citation: {sentence.strip()[:140]!r}")
    return warnings


def spread_warnings(cited: list[str], ledger: dict[str, dict[str, Any]] | None) -> list[str]:
    """Return warnings about one dominant publisher and unused sources."""
    warnings = []
    hosts = Counter(host_of(url) for url in cited)
    if len(cited) >= 4 and hosts.most_common(1)[0][1] > len(cited) / 2:
        host, count = hosts.most_common(1)[0]
        warnings.append(f"{count} of {len(cited)} citations come from {host}")
    used = {normal_url(url) for url in cited}
    for key, source in (ledger or {}).items():
        if key not in used and source.get("stance") == "contradicts":
            warnings.append(f"contradicting source is not cited: {source['title']} ({source['url']})")
    return warnings


def main() -> int:
    """Check the report, print the findings, return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("report", type=Path, help="the report, a Markdown file")
    parser.add_argument("--sources", type=Path, nargs="+", metavar="LEDGER", help="ledgers (*.jsonl)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="form of the output")
    parser.add_argument("--strict", action="store_true", help="exit with 1 on warnings too")
    options = parser.parse_args()
    text = CODE.sub(lambda match: "\n" * match[0].count("\n"), read_text(options.report))
    ledger = None
    if options.sources:
        ledger = {normal_url(source["url"]): source for source in read_sources(options.sources)}
    body, listed = split_report(text)
    cited = [match[2] for match in CITATION.finditer(body) if match[2]]
    errors = citation_errors(text, ledger) + list_errors(listed, cited)
    if not cited:
        errors.append("the report has no citation; put [citation:Title](URL) behind each claim from outside")
    warnings = text_warnings(body) + spread_warnings(cited, ledger)
    result = {
        "citations": len(cited),
        "pages": len({normal_url(url) for url in cited}),
        "publishers": len({host_of(url) for url in cited}),
        "errors": errors,
        "warnings": warnings,
    }
    if options.format == "json":
        print(json.dumps(result, ensure_ascii=False, indent=2))
    else:
        print(
            f"{result['citations']} citations of {result['pages']} pages by {result['publishers']} publishers"
        )
        for kind in ("errors", "warnings"):
            for line in result[kind]:
                print(f"{kind[:-1]}: {line}")
    return 1 if errors or (options.strict and warnings) else 0


if __name__ == "__main__":
    sys.exit(main())
