"""Store the outcomes of a user's teams, and retrieve them for later teams with a similar goal."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from langgraph.store.base import BaseStore

from deerflow.domain import folder_name
from deerflow.memory.searching import words_of
from deerflow.subagents.teams.findings import FindingsGraph

ROOT = "teams"
MAX_LOOKED_AT = 200
MAX_RECALLED = 3
MAX_GOAL_CHARS = 300
MAX_OUTCOME_CHARS = 800
MAX_FINDINGS = 10
SHORT_WORD_CHARS = 2


@dataclass(frozen=True, slots=True)
class Experience:
    """Outcomes of teams in the LangGraph store; without a store nothing is kept."""

    store: BaseStore | None

    async def recall(self, *, user_id: str, project_id: str, goal: str) -> list[str]:
        """Return the outcomes most similar to `goal`; those of this project rank higher."""
        if self.store is None:
            return []
        items = await self.store.asearch((ROOT, folder_name(user_id)), limit=MAX_LOOKED_AT)
        ranked = sorted(
            (
                (
                    _likeness(goal, str(item.value.get("goal"))) + 0.5 * (item.namespace[-1] == project_id),
                    item,
                )
                for item in items
                if _likeness(goal, str(item.value.get("goal"))) > 0
            ),
            key=lambda pair: (-pair[0], pair[1].key),
        )
        return [_told(item.value) for _, item in ranked[:MAX_RECALLED]]

    async def save(
        self, key: str, *, user_id: str, project_id: str, goal: str, outcome: str, findings: FindingsGraph
    ) -> None:
        """Store the outcome of a team; saving under the same key replaces it."""
        if self.store is None:
            return
        value: dict[str, Any] = {
            "goal": goal[:MAX_GOAL_CHARS],
            "outcome": outcome[:MAX_OUTCOME_CHARS],
            "findings": [str(finding) for finding in findings.about()[-MAX_FINDINGS:]],
        }
        await self.store.aput((ROOT, folder_name(user_id), project_id), key, value, index=False)


def _likeness(goal: str, other: str) -> float:
    """Return the share of common words of two goals (Jaccard index), between 0 and 1."""
    one, two = (set(_telling(text)) for text in (goal, other))
    return len(one & two) / len(one | two) if one and two else 0.0


def _telling(text: str) -> Iterator[str]:
    """Yield the words of a text without short ones, except Chinese, whose words are character pairs."""
    return (word for word in words_of(text) if len(word) > SHORT_WORD_CHARS or not word.isascii())


def _told(value: dict[str, Any]) -> str:
    findings = "; ".join(value.get("findings") or ())
    learned = f" Findings: {findings}" if findings else ""
    return f"An earlier team was asked: {value['goal']} It came to: {value['outcome']}{learned}"
