"""Finds the skills that fit a need, by the words and the meaning of their names and descriptions."""

import asyncio
from collections.abc import Collection

from deerflow.retrieval import Ranker, default_embeddings
from deerflow.skills.loader import Skills
from deerflow.skills.skill import Skill

_MAX_RANKERS = 16


class SkillSearch:
    """Searches the enabled skills; what it prepares for a search is kept until they change."""

    def __init__(self, skills: Skills) -> None:
        self._skills = skills
        self._rankers: dict[tuple[str, frozenset[str] | None], tuple[tuple[Skill, ...], Ranker]] = {}

    async def find(
        self, need: str, *, user: str, names: Collection[str] | None = None, limit: int = 5
    ) -> list[Skill]:
        """Return the skills that fit best, best first.

        Args:
            names: The only skills that may be found; None for all.
        """
        return await asyncio.to_thread(self._find, need, user, names, limit)

    def _find(self, need: str, user: str, names: Collection[str] | None, limit: int) -> list[Skill]:
        allowed = None if names is None else frozenset(names)
        enabled = self._skills.enabled(user=user)
        known = self._rankers.get((user, allowed))
        if known is None or known[0] is not enabled:
            usable = [skill for skill in enabled if allowed is None or skill.name in allowed]
            ranker = Ranker([searched_text(skill) for skill in usable], embeddings=default_embeddings())
            if len(self._rankers) >= _MAX_RANKERS:
                self._rankers.clear()
            known = self._rankers[user, allowed] = (enabled, ranker)
        usable = [skill for skill in enabled if allowed is None or skill.name in allowed]
        return [usable[hit.index] for hit in known[1].rank(need, limit=limit)]


def searched_text(skill: Skill) -> str:
    """Return the text by which a skill is found."""
    return f"{skill.name.replace('-', ' ')}\n{skill.description}"
