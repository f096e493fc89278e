"""Checks findings against a document and writes them down: as comments in a Word copy and as a list."""

import argparse
import json
from pathlib import Path
from typing import Any

from _common import stop
from _document import Block, docx, normal, read_blocks

SEVERITIES = ("critical", "major", "minor", "suggestion")
AUTHOR = "Reviewer"


def main() -> None:
    """Write the commented document and the list of findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("document", type=Path, help=".docx, .pdf, .md or .txt")
    parser.add_argument(
        "findings", type=Path, help="JSON list of {quote, comment, severity, suggestion?, category?}"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="path without suffix: .md is written, for Word .docx too"
    )
    parser.add_argument("--author", default=AUTHOR, help=f"name on the comments (default {AUTHOR})")
    options = parser.parse_args()

    blocks = read_blocks(options.document)
    findings = _read(options.findings)
    unplaced = _locate(findings, blocks)
    if unplaced:
        quotes = "\n".join(f"- finding {number}: {quote!r}" for number, quote in unplaced)
        stop(f"these quotations are not in the document word for word; copy them from extract.py:\n{quotes}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    files = [options.out.with_name(f"{options.out.name}.md")]
    files[0].write_text(_markdown(options.document.name, findings), encoding="utf-8")
    inside = 0
    if options.document.suffix.lower() == ".docx":
        files.append(options.out.with_name(f"{options.out.name}.docx"))
        inside = _comment(options.document, findings, files[1], options.author)
    counts = {level: sum(one["severity"] == level for one in findings) for level in SEVERITIES}
    print(
        json.dumps({"files": [str(file) for file in files], "comments": inside, "counts": counts}, indent=1)
    )


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        findings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        stop(f"{path} cannot be read: {error}")
    if not isinstance(findings, list) or not findings:
        stop(f"{path.name} must be a list with at least one finding")
    for number, one in enumerate(findings, 1):
        missing = [
            key for key in ("quote", "comment", "severity") if not isinstance(one, dict) or not one.get(key)
        ]
        if missing:
            stop(f"finding {number} needs {', '.join(missing)}")
        if one["severity"] not in SEVERITIES:
            stop(f"finding {number}: 'severity' is {one['severity']!r}; use one of {', '.join(SEVERITIES)}")
    return findings


def _locate(findings: list[dict[str, Any]], blocks: list[Block]) -> list[tuple[int, str]]:
    """Add block and place to every finding; return those whose quotation is nowhere."""
    unplaced = []
    for number, one in enumerate(findings, 1):
        quote = normal(one["quote"])
        block = next((block for block in blocks if quote in normal(block.text)), None)
        if block is None:
            unplaced.append((number, one["quote"]))
        else:
            one["block"], one["place"] = block.id, block.place
    return unplaced


def _markdown(name: str, findings: list[dict[str, Any]]) -> str:
    lines = [f"# Review of {name}", ""]
    for level in SEVERITIES:
        chosen = [one for one in findings if one["severity"] == level]
        if not chosen:
            continue
        lines += [f"## {level.capitalize()} ({len(chosen)})", ""]
        for one in chosen:
            category = f" · {one['category']}" if one.get("category") else ""
            lines += [
                f"**{one['block']}, {one['place']}{category}**",
                "",
                f"> {one['quote']}",
                "",
                str(one["comment"]),
                "",
            ]
            if one.get("suggestion"):
                lines += [f"Suggestion: {one['suggestion']}", ""]
    return "\n".join(lines)


def _comment(path: Path, findings: list[dict[str, Any]], out: Path, author: str) -> int:
    document = docx.Document(str(path))
    paragraphs = [*document.paragraphs]
    for table in document.tables:
        paragraphs += [paragraph for row in table.rows for cell in row.cells for paragraph in cell.paragraphs]
    inside = 0
    for one in findings:
        quote = normal(one["quote"])
        for paragraph in paragraphs:
            if quote in normal(paragraph.text) and paragraph.runs:
                text = f"[{one['severity']}] {one['comment']}"
                if one.get("suggestion"):
                    text += f"\nSuggestion: {one['suggestion']}"
                initials = "".join(word[0] for word in author.split())[:3]
                document.add_comment(_runs(paragraph, quote), text=text, author=author, initials=initials)
                inside += 1
                break
    document.save(str(out))
    return inside


def _runs(paragraph: Any, quote: str) -> list[Any]:
    """Return the runs that hold the quotation; the whole paragraph when it cannot be told."""
    runs = paragraph.runs
    for start in range(len(runs)):
        for end in range(start + 1, len(runs) + 1):
            if quote in normal("".join(run.text for run in runs[start:end])):
                while start + 1 < end and quote in normal("".join(run.text for run in runs[start + 1 : end])):
                    start += 1
                return list(runs[start:end])
    return list(runs)


if __name__ == "__main__":
    main()
