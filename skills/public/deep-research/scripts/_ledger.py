"""Reads a research plan and source ledgers; used by the scripts beside it."""

import json
import re
import sys
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import parse_qsl, urlencode, urlsplit

TYPES = ("primary", "official", "academic", "news", "industry", "community", "other")
STANCES = ("supports", "contradicts", "context")
DATE = re.compile(r"\d{4}(-\d{2}(-\d{2})?)?")


def fail(message: str) -> NoReturn:
    """Report a wrong input and exit with code 2."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def read_text(path: Path) -> str:
    """Return a file's text, or fail with the reason."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{path} cannot be read: {error}")


def read_plan(path: Path) -> dict[str, Any]:
    """Return the plan: a question and angles with distinct ids."""
    try:
        plan = json.loads(read_text(path))
    except ValueError as error:
        fail(f"{path} is not valid JSON: {error}")
    if not isinstance(plan, dict) or not isinstance(plan.get("angles"), list) or not plan["angles"]:
        fail(f"{path} needs the keys 'question' and 'angles' (a list with at least one angle)")
    seen: set[str] = set()
    for number, angle in enumerate(plan["angles"], 1):
        if not isinstance(angle, dict) or not angle.get("id") or not angle.get("question"):
            fail(f"{path}: angle {number} needs 'id' and 'question'")
        least = angle.get("min_sources", 3)
        if isinstance(least, bool) or not isinstance(least, int) or least < 1:
            fail(f"{path}: angle '{angle['id']}' has min_sources {least!r}; use a whole number from 1 up")
        if angle["id"] in seen:
            fail(f"{path}: two angles have the id '{angle['id']}'")
        seen.add(angle["id"])
    return plan


def read_sources(paths: list[Path]) -> list[dict[str, Any]]:
    """Return the sources of all ledgers; blank lines are skipped."""
    sources = []
    for path in paths:
        for number, line in enumerate(read_text(path).splitlines(), 1):
            if line.strip():
                sources.append(_source(line, f"{path}:{number}"))
    return sources


def _source(line: str, place: str) -> dict[str, Any]:
    try:
        source = json.loads(line)
    except ValueError as error:
        fail(f"{place} is not valid JSON: {error}")
    if not isinstance(source, dict):
        fail(f"{place} must be a JSON object with url, title and angle")
    for key in ("url", "title", "angle"):
        if not isinstance(source.get(key), str) or not source[key].strip():
            fail(f"{place} has no '{key}'")
    if source.get("type", "other") not in TYPES:
        fail(f"{place}: type {source['type']!r} is unknown; use one of {', '.join(TYPES)}")
    if source.get("stance", "context") not in STANCES:
        fail(f"{place}: stance {source['stance']!r} is unknown; use one of {', '.join(STANCES)}")
    date = source.get("date") or ""
    if not isinstance(date, str) or (date and not DATE.fullmatch(date)):
        fail(f"{place}: date {date!r} must be YYYY, YYYY-MM, YYYY-MM-DD or empty")
    return source


def normal_url(url: str) -> str:
    """Return the URL in one spelling, so that the same page counts once."""
    parts = urlsplit(url.strip())
    if not parts.netloc:
        return url.strip().split("#")[0]
    query = urlencode([(key, value) for key, value in parse_qsl(parts.query) if not key.startswith("utm_")])
    return f"{host_of(url)}{parts.path.rstrip('/')}{'?' + query if query else ''}"


def host_of(url: str) -> str:
    """Return the publisher's host without 'www.'; the path itself for a local file."""
    parts = urlsplit(url.strip())
    return parts.netloc.lower().removeprefix("www.") or url.strip().split("#")[0]
