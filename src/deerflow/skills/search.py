"""Finds the skills that fit a need by words and meaning: names, descriptions, requests of their cases."""

import asyncio
from collections.abc import Collection

from deerflow.errors import InvalidInputError
from deerflow.retrieval import Ranker, default_embeddings
from deerflow.skills.evals import read_evals
from deerflow.skills.loader import Skills
from deerflow.skills.skill import Skill

_MAX_RANKERS = 16
_MAX_REQUESTS = 20
_REQUEST_CHARS = 200


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
    """Return the text by which a skill is found; reads the disk."""
    return "\n".join([skill.name.replace("-", " "), skill.description, *_requests(skill)])


def _requests(skill: Skill) -> list[str]:
    """Return the requests for which the skill's own cases expect it to be read: words of users."""
    try:
        cases = read_evals(skill.folder)
    except InvalidInputError:
        return []
    return [] if cases is None else [text[:_REQUEST_CHARS] for text in cases.triggers.should[:_MAX_REQUESTS]]
