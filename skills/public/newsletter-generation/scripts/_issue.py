"""Reads the description of a newsletter issue and refuses what mail cannot show."""

import html
import json
import re
import sys
from pathlib import Path
from typing import Any, NoReturn

ADDRESS = re.compile(r"https://[^\s<>\"']+\.[^\s<>\"']+|mailto:[^\s<>\"']+@[^\s<>\"']+|\{\{\s*\w+\s*\}\}")
"""A link, or a merge field such as {{unsubscribe_url}} that the sending service fills."""
MARKS = re.compile(r"\*\*(.+?)\*\*|\[([^\]]+)\]\(([^)\s]+)\)")


def stop(message: str) -> NoReturn:
    """Say what was wrong and leave with exit code 2."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


def read_issue(path: Path) -> dict[str, Any]:
    """Return the description; stop when something is missing or a link is none."""
    try:
        issue = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        stop(f"{path} cannot be read: {error}")
    if not isinstance(issue, dict):
        stop(f"{path} must hold an object")
    for key in ("subject", "preheader", "title", "sections", "footer"):
        if not issue.get(key):
            stop(f"{key!r} is missing")
    if issue.get("accent") and not re.fullmatch(r"#[0-9a-fA-F]{6}", str(issue["accent"])):
        stop(f"'accent' is {issue['accent']!r}; write a colour as #2563a8")
    footer = issue["footer"]
    for key in ("sender", "unsubscribe"):
        if not isinstance(footer, dict) or not footer.get(key):
            stop(f"'footer.{key}' is missing: readers must know who writes and how to leave")
    _address(footer["unsubscribe"], "footer.unsubscribe")
    for number, section in enumerate(issue["sections"], 1):
        _section(section, f"section {number}")
    if issue.get("action"):
        _address(issue["action"].get("url"), "action.url")
    return issue


def _section(section: Any, name: str) -> None:
    if not isinstance(section, dict) or not section.get("heading"):
        stop(f"{name} needs 'heading'")
    if not section.get("text") and not section.get("items"):
        stop(f"{name} ({section['heading']}) needs 'text' or 'items'")
    for number, item in enumerate(section.get("items", []), 1):
        place = f"{name}, item {number}"
        if not isinstance(item, dict) or not item.get("title") or not item.get("text"):
            stop(f"{place} needs 'title' and 'text'")
        if item.get("url"):
            _address(item["url"], f"{place}: 'url'")
        if item.get("image"):
            _address(item["image"], f"{place}: 'image'")
            if not item.get("alt"):
                stop(f"{place}: the picture needs 'alt'; many readers see only that")


def _address(value: Any, name: str) -> None:
    if not isinstance(value, str) or not ADDRESS.fullmatch(value):
        stop(
            f"{name} is {value!r}; write a full https:// address (or a merge field such as "
            f"{{{{unsubscribe_url}}}})"
        )


def rich(text: str, accent: str) -> str:
    """Return text as HTML; **bold** and [links](https://…) are kept, everything else is escaped."""
    parts, end = [], 0
    for match in MARKS.finditer(text):
        parts.append(html.escape(text[end : match.start()]))
        if match[1]:
            parts.append(f"<strong>{html.escape(match[1])}</strong>")
        else:
            _address(match[3], f"the link of {match[2]!r}")
            parts.append(
                f'<a href="{html.escape(match[3])}" style="color:{accent}">{html.escape(match[2])}</a>'
            )
        end = match.end()
    return "".join([*parts, html.escape(text[end:])])


def plain(text: str) -> str:
    """Return text for the plain part; links become words with their address."""
    return MARKS.sub(lambda match: match[1] or f"{match[2]} <{match[3]}>", text)


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a text; an empty line divides them."""
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", str(text)) if part.strip()]
