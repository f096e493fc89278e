"""A team's shared findings (subject, predicate, object), their tools, and outcomes of earlier teams."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool
from langgraph.store.base import BaseStore
from pydantic import BaseModel, Field

from deerflow.context import RunContext
from deerflow.domain import folder_name
from deerflow.errors import InvalidInputError
from deerflow.memory.searching import words_of
from deerflow.tools.define import Runtime, tool_of

SHARE_FINDING = "share_finding"
TEAM_FINDINGS = "team_findings"
ID_SEPARATOR = "."
"""Separates team id and step id in the id of a member's task; step ids cannot contain it."""
MAX_FINDINGS = 500
MAX_PART_CHARS = 500
MAX_SHOWN = 100
STORE_NAMESPACE = "teams"
MAX_SEARCHED = 200
MAX_RECALLED = 3
MAX_STORED_GOAL_CHARS = 300
MAX_OUTCOME_CHARS = 800
MAX_STORED_FINDINGS = 10
SHORT_WORD_CHARS = 2


@dataclass(frozen=True, slots=True)
class TeamFinding:
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
    findings: tuple[TeamFinding, ...]

    def __str__(self) -> str:
        objects = "; ".join(f"{finding.object} (by {finding.step})" for finding in self.findings)
        return f"{self.subject} — {self.predicate}: {objects}"


class FindingsGraph:
    """All findings of one team, without duplicates."""

    def __init__(self) -> None:
        self._findings: dict[tuple[str, str, str, str], TeamFinding] = {}

    def __len__(self) -> int:
        return len(self._findings)

    def add(self, finding: TeamFinding) -> bool:
        """Add a finding; return False for duplicates and above `MAX_FINDINGS`."""
        key = (*_key(finding), _normalized_object(finding), finding.step)
        if key in self._findings or len(self) >= MAX_FINDINGS:
            return False
        self._findings[key] = finding
        return True

    def add_from_messages(self, step: str, messages: Iterable[BaseMessage]) -> None:
        """Add the findings in a member's tool calls: after a restart only its messages are left."""
        for message in messages:
            for call in message.tool_calls if isinstance(message, AIMessage) else ():
                if call["name"] == SHARE_FINDING and (finding := finding_of(call["args"], step)):
                    self.add(finding)

    def about(self, words: str = "") -> list[TeamFinding]:
        """Return the findings that contain one of these words; without words, all."""
        wanted = normalized(words).split()
        return [
            finding
            for finding in self._findings.values()
            if not wanted or any(word in normalized(str(finding)) for word in wanted)
        ]

    def contradictions(self) -> list[Contradiction]:
        """Return the statements on which members disagree."""
        groups: defaultdict[tuple[str, str], list[TeamFinding]] = defaultdict(list)
        for finding in self._findings.values():
            groups[_key(finding)].append(finding)
        return [
            Contradiction(group[0].subject, group[0].predicate, tuple(group))
            for group in groups.values()
            # One member may list several objects; different objects from two members are a contradiction.
            if len(set(map(_normalized_object, group))) > 1 and len({each.step for each in group}) > 1
        ]

    def terms(self) -> dict[str, list[str]]:
        """Return names with several spellings: the most frequent one, and the others."""
        spellings: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for finding in self._findings.values():
            for name in (finding.subject, finding.predicate):
                counts = spellings[normalized(name)]
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


def finding_of(arguments: Mapping[str, object], step: str) -> TeamFinding | None:
    """Return the finding in the arguments of a call; None when a part is empty."""
    parts = [str(arguments.get(name) or "").strip() for name in ("subject", "predicate", "object", "source")]
    if not all(parts[:3]):
        return None
    subject, predicate, thing, source = (part[:MAX_PART_CHARS] for part in parts)
    return TeamFinding(subject, predicate, thing, step, source)


def normalized(text: str) -> str:
    """Return a name without case, punctuation and repeated spaces."""
    return " ".join(re.sub(r"[\s_\-–—.,:;'\"]+", " ", text.casefold()).split())


def _key(finding: TeamFinding) -> tuple[str, str]:
    return normalized(finding.subject), normalized(finding.predicate)


def _normalized_object(finding: TeamFinding) -> str:
    return " ".join(finding.object.casefold().split())  # keep punctuation: it matters in numbers


class FindingsBoards:
    """The findings of all teams running in this process, by run and team."""

    def __init__(self) -> None:
        self._graphs: dict[tuple[str, str], FindingsGraph] = {}

    @contextmanager
    def open(self, run_id: str, team_id: str) -> Iterator[FindingsGraph]:
        """Register a findings graph for the length of a block."""
        graph = self._graphs[run_id, team_id] = FindingsGraph()
        try:
            yield graph
        finally:
            self._graphs.pop((run_id, team_id), None)

    def of_member(self, context: RunContext) -> tuple[FindingsGraph, str]:
        """Return the findings of the member's team, and the id of the member's step."""
        team_id, _, step = (context.task_id or "").rpartition(ID_SEPARATOR)
        graph = self._graphs.get((context.run_id, team_id))
        if graph is None:
            raise InvalidInputError("only members of a team at work share findings")
        return graph, step


class ShareArguments(BaseModel):
    """What `share_finding` takes."""

    subject: str = Field(min_length=1, max_length=MAX_PART_CHARS, description="What it is about.")
    predicate: str = Field(min_length=1, max_length=MAX_PART_CHARS, description="Which property or relation.")
    object: str = Field(min_length=1, max_length=MAX_PART_CHARS, description="Its value or the other thing.")
    source: str = Field("", max_length=MAX_PART_CHARS, description="Where it is from: a path or an address.")


class FindingsArguments(BaseModel):
    """What `team_findings` takes."""

    about: str = Field("", max_length=MAX_PART_CHARS, description="Words to look for; empty shows all.")


def make_findings_tools(boards: FindingsBoards) -> list[BaseTool]:
    """Return the tools for team members."""

    async def share(*, subject: str, predicate: str, object: str, source: str, runtime: Runtime) -> str:  # noqa: A002
        """Tell the whole team one finding as subject, predicate and object."""
        graph, step = boards.of_member(runtime.context)
        arguments = {"subject": subject, "predicate": predicate, "object": object, "source": source}
        finding = finding_of(arguments, step)
        if finding is None:
            raise InvalidInputError("subject, predicate and object need words")
        if not graph.add(finding):
            return "The team knows this already, or has all the findings it can keep."
        runtime.context.publish({"type": "team_finding", "task_id": runtime.context.task_id, **arguments})
        contradicting = [str(each) for each in graph.contradictions() if finding in each.findings]
        return f"Shared. The team disagrees, look into it: {contradicting[0]}" if contradicting else "Shared."

    async def show(*, about: str, runtime: Runtime) -> str:
        """Show what the team has found so far."""
        graph, _ = boards.of_member(runtime.context)
        return graph.render(about) or "Nothing yet."

    return [
        tool_of(SHARE_FINDING, ShareArguments, is_safe_to_repeat=True)(share),
        tool_of(TEAM_FINDINGS, FindingsArguments, is_safe_to_repeat=True)(show),
    ]


@dataclass(frozen=True, slots=True)
class TeamExperience:
    """Outcomes of teams in the LangGraph store; without a store nothing is kept."""

    store: BaseStore | None

    async def recall(self, *, user_id: str, project_id: str, goal: str) -> list[str]:
        """Return the outcomes most similar to `goal`; those of this project rank higher."""
        if self.store is None:
            return []
        items = await self.store.asearch((STORE_NAMESPACE, folder_name(user_id)), limit=MAX_SEARCHED)
        ranked = []
        for item in items:
            if (similarity := _similarity(goal, str(item.value.get("goal")))) > 0:
                is_same_project = item.namespace[-1] == project_id
                ranked.append((-similarity - 0.5 * is_same_project, item.key, _summary(item.value)))
        return [summary for *_, summary in sorted(ranked)[:MAX_RECALLED]]

    async def save(
        self, key: str, *, user_id: str, project_id: str, goal: str, outcome: str, findings: FindingsGraph
    ) -> None:
        """Store the outcome of a team; saving under the same key replaces it."""
        if self.store is None:
            return
        value: dict[str, Any] = {
            "goal": goal[:MAX_STORED_GOAL_CHARS],
            "outcome": outcome[:MAX_OUTCOME_CHARS],
            "findings": [str(finding) for finding in findings.about()[-MAX_STORED_FINDINGS:]],
        }
        await self.store.aput((STORE_NAMESPACE, folder_name(user_id), project_id), key, value, index=False)


def _similarity(goal: str, other: str) -> float:
    """Return the share of common words of two goals (Jaccard index), between 0 and 1."""
    one, two = (set(_significant_words(text)) for text in (goal, other))
    return len(one & two) / len(one | two) if one and two else 0.0


def _significant_words(text: str) -> Iterator[str]:
    """Yield the words of a text without short ones, except Chinese, whose words are character pairs."""
    return (word for word in words_of(text) if len(word) > SHORT_WORD_CHARS or not word.isascii())


def _summary(value: dict[str, Any]) -> str:
    findings = "; ".join(value.get("findings") or ())
    found = f" Findings: {findings}" if findings else ""
    return f"An earlier team was asked: {value['goal']} It came to: {value['outcome']}{found}"
