"""Writes the report: quoted sentences by aspect and file, each with the line that proves it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deerflow.models.offline.findings import CitedSentence, Research, cited, labels_for, parse_cited
from deerflow.models.offline.phrases import phrases
from deerflow.models.offline.question import Question, coverage, query_for
from deerflow.models.offline.ranking import Bm25
from deerflow.models.offline.sentences import shortened
from deerflow.models.offline.words import terms

MAX_PER_ASPECT = 30
MAX_COLUMNS = 5
CELL_CHARS = 140
SUMMARY_FLOOR = 0.4
"""How good, against the best one, a sentence must be to stand in the summary of an answer."""
MAX_BYTES = 60_000
"""Below the size that one `write_file` call may have."""

_SLUG = re.compile(r"[^a-z0-9\u3400-\u9fff]+")


@dataclass(frozen=True, slots=True)
class Notes:
    """What else a reader should know, such as files that were passed over."""

    lines: tuple[str, ...] = ()


def write_report(question: Question, research: Research, notes: Notes) -> str:
    """Return the report in Markdown; it is made shorter until it fits one file."""
    for most in (3, 2, 1):
        text = _report(question, research, notes, most)
        if len(text.encode()) <= MAX_BYTES:
            break
    return text


def slug(question: str) -> str:
    """Return a file name for a question's report."""
    words = _SLUG.sub("-", question.lower()).strip("-")
    return shortened(words.replace("-", " "), 48).replace(" ", "-") or "report"


def summary_of(report: str) -> list[str]:
    """Return the cited sentences of a report's summary."""
    lines = report.split("\n")
    start = next((number for number, line in enumerate(lines) if line.startswith("## ")), 0)
    claims = []
    for line in lines[start + 1 :]:
        if line.startswith("## "):
            break
        if line.startswith("- ") and parse_cited(line[2:], aspect=""):
            claims.append(line)
    return claims


def _report(question: Question, research: Research, notes: Notes, most: int) -> str:
    say = phrases(question.language)
    labels = labels_for(source.path for source in research.sources)
    aspects = _aspects(question, research)
    parts = [
        f"# {title(question.text)}",
        f"> {say.origin}",
        f"## {say.summary}",
        _summary(question, research, labels),
    ]
    if question.intent == "compare" and len(labels) > 1 and aspects:
        parts += [f"## {say.comparison}", _table(question, research, aspects, labels)]
    for aspect in aspects:
        parts += [f"## {aspect}", _section(question, research, aspect, labels, most)]
    unread = unread_lines(question, research, notes)
    if unread:
        parts += [f"## {say.unread}", unread]
    parts += [f"## {say.sources}", _sources(question, research)]
    return "\n\n".join(parts) + "\n"


def title(text: str) -> str:
    """Return a question as one line that can be a heading."""
    line = shortened(" ".join(text.split()), 100)
    return line if len(line) == len(" ".join(text.split())) else f"{line} …"


def _aspects(question: Question, research: Research) -> list[str]:
    """Return the aspects that anything was found on; those asked for first."""
    files = {
        aspect: {item.path for item in research.findings if item.aspect == aspect} for aspect in question.plan
    }
    found = [aspect for aspect in question.plan if files[aspect]]
    if question.intent == "compare":
        found.sort(key=lambda aspect: (aspect not in question.aspects, -len(files[aspect])))
    return found


def _summary(question: Question, research: Research, labels: dict[str, str]) -> str:
    say = phrases(question.language)
    lines = [f"- {cited(item, label=labels.get(item.path))}" for item in best(question, research)]
    found = {item.aspect for item in research.findings}
    silent = [aspect for aspect in question.plan if aspect not in found]
    if silent:
        separator = "、" if question.language == "zh" else "; "
        lines += ["", f"*{say.nothing_on.format(what=separator.join(silent))}*"]
    return "\n".join(lines)


def best(question: Question, research: Research, *, limit: int = 6) -> list[CitedSentence]:
    """Return the findings that fit the question best; a wide question gets one of each file first."""
    scored = _scored(question, research.findings)
    ranked = [item for _, item in scored]
    if question.intent == "ask":
        leaders = {item.aspect: item for item in reversed(ranked)}
        good = [item for score, item in scored if score >= SUMMARY_FLOOR * scored[0][0]]
        return list(
            dict.fromkeys([*(leaders[aspect] for aspect in question.plan if aspect in leaders), *good])
        )[:limit]
    if question.intent == "compare":  # what all files speak of can be compared, so it comes first
        order = {aspect: number for number, aspect in enumerate(_aspects(question, research))}
        ranked.sort(key=lambda item: order.get(item.aspect, len(order)))
    first = {item.path: item for item in reversed(ranked)}
    picked = [item for item in ranked if first[item.path] is item]
    rest = [item for item in ranked if first[item.path] is not item]
    return (picked + rest)[:limit]


def _scored(question: Question, findings: Sequence[CitedSentence]) -> list[tuple[float, CitedSentence]]:
    """Return findings of all files in one order, best first: each reader ranked only its own."""
    queries = {item.aspect: query_for(item.aspect, question.text) for item in findings}
    texts = [terms(item.text) for item in findings]
    index = Bm25(texts, vocabulary=(term for query in queries.values() for term in query))
    scores = {aspect: index.scores(query) for aspect, query in queries.items()}
    scored = [
        (scores[item.aspect][index] * coverage(item.aspect, texts[index]), item)
        for index, item in enumerate(findings)
    ]
    return sorted(scored, key=lambda pair: -pair[0])


def _table(question: Question, research: Research, aspects: Sequence[str], labels: dict[str, str]) -> str:
    columns = list(aspects[:MAX_COLUMNS])
    head = [phrases(question.language).file, *columns]
    rows = [f"| {' | '.join(_cell(text) for text in head)} |", "|" + "---|" * len(head)]
    for path, name in labels.items():
        cells = [_table_claim(research.findings, path, aspect, name) for aspect in columns]
        if any(cell != "—" for cell in cells):
            rows.append(f"| {_cell(name)} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _table_claim(findings: Iterable[CitedSentence], path: str, aspect: str, name: str) -> str:
    mine = [item for item in findings if item.path == path and item.aspect == aspect]
    if not mine:
        return "—"
    # A short sentence without a bar reads best in a table; the others stand below it anyway.
    choice = min(mine[:3], key=lambda item: ("|" in item.text, len(item.fragments[0].text) > CELL_CHARS))
    return _cell(cited(choice, label=name, limit=CELL_CHARS if len(choice.text) > CELL_CHARS else None))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _section(question: Question, research: Research, aspect: str, labels: dict[str, str], most: int) -> str:
    say = phrases(question.language)
    mine = [item for item in research.findings if item.aspect == aspect]
    each = max(
        1, min(6 if len(labels) == 1 else most, MAX_PER_ASPECT // max(1, len({item.path for item in mine})))
    )
    parts = []
    for path, name in labels.items():
        quoted = [f"- {cited(item, label=name)}" for item in mine if item.path == path][:each]
        if quoted:
            parts.append("\n".join([f"### {name}", "", *quoted] if len(labels) > 1 else quoted))
    readable = {source.path for source in research.sources if source.state in ("full", "part")}
    silent = [
        name for path, name in labels.items() if path in readable and all(item.path != path for item in mine)
    ]
    if silent and len(labels) > 1:
        separator = "、" if question.language == "zh" else ", "
        parts.append(f"*{say.nothing_in.format(files=separator.join(silent))}*")
    return "\n\n".join(parts)


def unread_lines(question: Question, research: Research, notes: Notes) -> str:
    """Return a list of what was not read, or not in full, and why."""
    say = phrases(question.language)
    lines = [
        f"- `{source.path}`: {source.detail or say.empty}"
        for source in research.sources
        if source.state != "full"
    ]
    return "\n".join([*lines, *(f"- {note}" for note in notes.lines)])


def _sources(question: Question, research: Research) -> str:
    say = phrases(question.language)
    lines = []
    for source in research.sources:
        if source.state in ("full", "part"):
            count = sum(item.path == source.path for item in research.findings)
            facts = ", ".join(
                filter(
                    None, (source.detail if source.state == "full" else "", say.passages.format(count=count))
                )
            )
            lines.append(f"- `{source.path}` ({facts})")
    return "\n".join(lines) or "—"
