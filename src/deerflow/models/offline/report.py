"""Writes the report: quoted sentences in the order of what was asked, each with the line that proves it."""

import hashlib
import re
from collections.abc import Sequence

from deerflow.models.offline.phrases import Language, say
from deerflow.retrieval import query_terms, terms
from deerflow.retrieval.quotes import Quote, cited, labels_for

OUTPUTS = "/mnt/user-data/outputs"
MAX_ANSWER = 8
FEWEST = 3
FLOOR = 0.4
"""How good, against the best one, a sentence must be to stand in the answer beside it."""
MAX_BEST = 8
MAX_OF_FILE = 6
MAX_COLUMNS = 4
CELL_CHARS = 140
_SLUG = re.compile(r"[^a-z0-9\u3400-\u9fff]+")
_WORD = re.compile(r"[^\W\d_]{2,}(?:-[^\W\d_]+)*")


def report_path(question: str, turn: int, attempt: int) -> str:
    """Return the path of a turn's report; another one for each attempt to write it."""
    name = _SLUG.sub("-", question.lower()).strip("-")[:48].strip("-") or "report"
    end = f"-{turn}" if turn > 1 else ""
    again = f"-{hashlib.sha256(question.encode()).hexdigest()[:6]}" if attempt else ""
    return f"{OUTPUTS}/{name}{end}{again}.md"


def answer_quotes(question: str, chosen: Sequence[Quote]) -> list[Quote]:
    """Return the quotes of the answer: what is compared from each file, else the best of each and of all."""
    compared = {each for _, found in _columns(question, chosen) for each in found.values()}
    if compared:
        return sorted(compared, key=chosen.index)[:MAX_ANSWER]
    leaders = {each.path: each for each in reversed(chosen)}.values()
    rest = [*chosen[:FEWEST], *(each for each in chosen if each.score >= FLOOR * chosen[0].score)]
    wanted = dict.fromkeys([*sorted(leaders, key=chosen.index)[: MAX_ANSWER - 2], *rest])
    return sorted(list(wanted)[:MAX_ANSWER], key=chosen.index)


def _columns(question: str, chosen: Sequence[Quote]) -> list[tuple[str, dict[str, Quote]]]:
    """Return the words of a question that every file speaks of, with the best quote of each file."""
    columns = []
    files = len({each.path for each in chosen})
    for word in dict.fromkeys(_WORD.findall(question)):
        found: dict[str, Quote] = {}
        for each in chosen:
            if set(query_terms(word)) & set(terms(each.text)):
                found.setdefault(each.path, each)
        if len(found) == files > 1:
            columns.append((word.capitalize(), found))
    return columns if 2 <= len(columns) <= MAX_COLUMNS else []


def write_report(
    question: str, chosen: Sequence[Quote], files: Sequence[str], omitted: Sequence[str], language: Language
) -> str:
    """Return the report in Markdown."""
    labels = labels_for([*files, *(each.path for each in chosen)])
    parts = [f"# {_title(question)}", say("origin", language)]
    table = _table(question, chosen, labels, language)
    if table:
        parts.append(table)
    parts += [f"## {say('best', language)}", _items(chosen[:MAX_BEST], labels)]
    by_file = {path: [each for each in chosen if each.path == path] for path in labels}
    if len(by_file) > 1:
        for path, mine in by_file.items():
            if mine:
                parts += [f"## {labels[path]}", _items(mine[:MAX_OF_FILE], labels)]
    parts += [f"## {say('read', language)}", "\n".join(f"- {path}" for path in files)]
    if omitted:
        parts += [f"## {say('omitted', language)}", "\n".join(f"- {each}" for each in omitted)]
    return "\n\n".join(parts) + "\n"


def _title(question: str) -> str:
    line = " ".join(question.split())
    return line if len(line) <= 120 else f"{line[:119]}…"


def _items(quotes: Sequence[Quote], labels: dict[str, str]) -> str:
    return "\n".join(f"- {cited(each, label=labels[each.path])}" for each in quotes)


def _table(question: str, chosen: Sequence[Quote], labels: dict[str, str], language: Language) -> str:
    """Return a table of the files by the words of the question that several of them speak of; or nothing."""
    columns = _columns(question, chosen)
    if not columns:
        return ""
    head = " | ".join([say("file", language), *(word for word, _ in columns)])
    rows = [f"| {head} |", f"|{'---|' * (len(columns) + 1)}"]
    for path in dict.fromkeys(each.path for each in chosen):
        cells = [_cell(found.get(path), labels) for _, found in columns]
        rows.append(f"| {' | '.join([labels[path], *cells])} |")
    return "\n".join(rows)


def _cell(found: Quote | None, labels: dict[str, str]) -> str:
    return cited(found, label=labels[found.path]).replace("|", "\\|") if found else "–"
