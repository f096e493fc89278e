"""A team's shared findings, as a graph of subject, predicate and object."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from langchain_core.messages import AIMessage, BaseMessage

SHARE_FINDING = "share_finding"
MAX_FINDINGS = 500
MAX_PART_CHARS = 500
MAX_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement, with the step that made it."""

    subject: str
    predicate: str
    object: str
    step: str
    source: str = ""

    def __str__(self) -> str:
        source = f" [{self.source}]" if self.source else ""
        return f"{self.subject} — {self.predicate}: {self.object} (by {self.step}){source}"


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Findings with the same subject and predicate but different objects."""

    subject: str
    predicate: str
    findings: tuple[Finding, ...]

    def __str__(self) -> str:
        said = "; ".join(f"{finding.object} (by {finding.step})" for finding in self.findings)
        return f"{self.subject} — {self.predicate}: {said}"


class FindingsGraph:
    """All findings of one team, without duplicates."""

    def __init__(self) -> None:
        self._findings: dict[tuple[str, str, str, str], Finding] = {}

    def __len__(self) -> int:
        return len(self._findings)

    def add(self, finding: Finding) -> bool:
        """Add a finding; return False for duplicates and above `MAX_FINDINGS`."""
        key = (*_key(finding), _value(finding), finding.step)
        if key in self._findings or len(self) >= MAX_FINDINGS:
            return False
        self._findings[key] = finding
        return True

    def learn(self, step: str, messages: Iterable[BaseMessage]) -> None:
        """Add the findings in a member's tool calls: after a restart only its messages are left."""
        for message in messages:
            for call in message.tool_calls if isinstance(message, AIMessage) else ():
                if call["name"] == SHARE_FINDING and (finding := finding_of(call["args"], step)):
                    self.add(finding)

    def about(self, words: str = "") -> list[Finding]:
        """Return the findings that contain one of these words; without words, all."""
        wanted = plain(words).split()
        return [
            finding
            for finding in self._findings.values()
            if not wanted or any(word in plain(str(finding)) for word in wanted)
        ]

    def contradictions(self) -> list[Contradiction]:
        """Return the statements on which members disagree."""
        groups: defaultdict[tuple[str, str], list[Finding]] = defaultdict(list)
        for finding in self._findings.values():
            groups[_key(finding)].append(finding)
        return [
            Contradiction(group[0].subject, group[0].predicate, tuple(group))
            for group in groups.values()
            # One member may list several objects; different objects from two members are a contradiction.
            if len(set(map(_value, group))) > 1 and len({each.step for each in group}) > 1
        ]

    def terms(self) -> dict[str, list[str]]:
        """Return names with several spellings: the most frequent one, and the others."""
        spellings: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for finding in self._findings.values():
            for name in (finding.subject, finding.predicate):
                counts = spellings[plain(name)]
                counts[name] = counts.get(name, 0) + 1
        chosen = {}
        for counts in spellings.values():
            first, *others = sorted(counts, key=lambda name: -counts[name])
            if others:
                chosen[first] = others
        return chosen

    def render(self, words: str = "") -> str:
        """Return the findings as lines, only the newest `MAX_SHOWN`."""
        found = self.about(words)
        left_out = f"({len(found) - MAX_SHOWN} older ones left out)\n" if len(found) > MAX_SHOWN else ""
        return left_out + "\n".join(f"- {finding}" for finding in found[-MAX_SHOWN:])


def finding_of(arguments: Mapping[str, object], step: str) -> Finding | None:
    """Return the finding in the arguments of a call; None when a part is empty."""
    parts = [str(arguments.get(name) or "").strip() for name in ("subject", "predicate", "object", "source")]
    if not all(parts[:3]):
        return None
    subject, predicate, thing, source = (part[:MAX_PART_CHARS] for part in parts)
    return Finding(subject, predicate, thing, step, source)


def plain(text: str) -> str:
    """Return a name normalized: without case, punctuation and repeated spaces."""
    return " ".join(re.sub(r"[\s_\-–—.,:;'\"]+", " ", text.casefold()).split())


def _key(finding: Finding) -> tuple[str, str]:
    return plain(finding.subject), plain(finding.predicate)


def _value(finding: Finding) -> str:
    return " ".join(finding.object.casefold().split())  # keep punctuation: it matters in numbers
