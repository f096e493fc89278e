"""Simple questions on a table (most, least, total, average, how many), computed in the sandbox."""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from deerflow.models.offline.phrases import Language, say
from deerflow.retrieval import terms
from deerflow.retrieval.quotes import Quote, cited
from deerflow.retrieval.sentences import Fragment

_OPERATIONS = {
    "most": re.compile(r"\b(?:most|highest|largest|biggest|maximum|max|best)\b|最[高大多贵]", re.I),
    "least": re.compile(r"\b(?:least|lowest|smallest|fewest|minimum|min)\b|最[低小少便]", re.I),
    "average": re.compile(r"\b(?:average|mean)\b|平均", re.I),
    "total": re.compile(r"\b(?:total|sum)\b|总和|总共|合计|一共|总计|总额", re.I),
    "count": re.compile(r"\bhow many (?:rows|lines|entries|records)\b|多少[行条]|几[行条]", re.I),
}
_TABLE_ENDINGS = (".csv", ".tsv", ".xlsx")
_PROGRAM = """
import csv, json, re
path, terms = {path!r}, {terms!r}
if path.endswith(".xlsx"):
    import openpyxl
    sheet = openpyxl.load_workbook(path, read_only=True, data_only=True).active
    rows = [["" if cell is None else str(cell) for cell in row] for row in sheet.iter_rows(values_only=True)]
else:
    with open(path, newline="", encoding="utf-8-sig", errors="replace") as file:
        rows = list(csv.reader(file, delimiter="\\t" if path.endswith(".tsv") else ","))
names, rows = rows[0], [(line, row) for line, row in enumerate(rows[1:], start=2) if any(row)]
def number(text):
    clean = re.sub(r"[,\\s%$€£¥元]", "", text)
    try:
        return float(clean)
    except ValueError:
        return None
numeric = [at for at, name in enumerate(names) if rows and all(
    len(row) > at and number(row[at]) is not None for _, row in rows)]
def is_asked(text):
    return any(text.casefold().startswith(term) or term in text.casefold().split() or
               (not term.isascii() and term in text) for term in terms)
wanted = [at for at in numeric if is_asked(names[at])] or numeric[-1:]
filters = sorted({{(at, row[at]) for _, row in rows for at in range(min(len(names), len(row)))
                  if at not in numeric and is_asked(row[at])}})
kept = [(line, row) for line, row in rows if all(
    any(row[at] == value for column, value in filters if column == at) for at in {{at for at, _ in filters}})]
column = wanted[0] if wanted else None
values = [(number(row[column]), line, row) for line, row in kept] if column is not None else []
print(json.dumps({{"column": names[column] if column is not None else "", "rows": len(kept),
    "filters": [f"{{names[at]}} = {{value}}" for at, value in filters],
    "total": sum(value for value, _, _ in values),
    "most": max(values, default=None), "least": min(values, default=None)}}, ensure_ascii=False))
"""


def is_table(path: str) -> bool:
    """Return whether a path names a table."""
    return path.lower().endswith(_TABLE_ENDINGS)


@dataclass(frozen=True, slots=True)
class Computation:
    """A question on the numbers of one table."""

    path: str
    operations: tuple[str, ...]
    program: str

    @classmethod
    def of(cls, question: str, files: Sequence[str], tools: Collection[str]) -> "Computation | None":
        """Return what to compute for a question; None when it asks for nothing that can be."""
        tables = [path for path in files if is_table(path)]
        named = [path for path in tables if path.rsplit("/", 1)[-1] in question]
        operations = tuple(name for name, pattern in _OPERATIONS.items() if pattern.search(question))
        if (
            "python" not in tools
            or not operations
            or len(named or tables) != 1
            or (not named and len(files) > 1)
        ):
            return None
        path = (named or tables)[0]
        words = terms(question.replace(path.rsplit("/", 1)[-1], " "))
        return cls(path, operations, _PROGRAM.format(path=path, terms=sorted(set(words))))

    def answer(self, output: str, language: Language) -> str:
        """Return the figures in words, with the rows that prove them; empty if the program failed."""
        line = next((line for line in output.split("\n") if line.startswith("{")), "")
        try:
            found = json.loads(line)
        except ValueError:
            return ""
        filters = say("only", language, what=", ".join(found["filters"])) if found["filters"] else ""
        name = self.path.rsplit("/", 1)[-1]
        lines = [say("computed", language, name=name, rows=found["rows"], filters=filters), ""]
        for operation in self.operations:
            lines.append(f"- {self._figure(operation, found, language)}")
        return "\n".join(lines)

    def _figure(self, operation: str, found: dict[str, object], language: Language) -> str:
        column, rows = str(found["column"]), int(str(found["rows"]))
        if operation == "count" or not column:
            return say("count", language, value=rows)
        if operation in ("total", "average"):
            total = float(str(found["total"]))
            value = total if operation == "total" else total / max(rows, 1)
            return say(
                operation,
                language,
                column=column,
                value=f"{value:.10g}" if value == int(value) else f"{value:.2f}",
            )
        best = found[operation]
        if not isinstance(best, list):
            return say("count", language, value=rows)
        value, line, row = best
        quoted = cited(Quote(self.path, (Fragment(line, ",".join(row)),)))
        return f"{say(operation, language, column=column, value=f'{value:.10g}')}\n  - {quoted}"
