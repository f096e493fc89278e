"""Finds the skills that fit a need by words and meaning: names, descriptions, requests of their cases."""

import asyncio
import logging
import os
import stat
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from deerflow.errors import InvalidInputError
from deerflow.retrieval import Ranker, default_embeddings
from deerflow.skills.evals import EVALS_FILE, read_evals
from deerflow.skills.loader import Skills
from deerflow.skills.skill import Skill

logger = logging.getLogger(__name__)

MAX_TRIGGERS = 20
MAX_TRIGGER_CHARS = 200
_MAX_RANKERS = 16
_MAX_READ = 20_000

_Stamp = tuple[int, ...] | None
"""Modification time, size and inode of a file, which tell that it changed; None if there is none to read."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Skills ready to be searched, and what they were made from."""

    enabled: tuple[Skill, ...]
    stamps: list[_Stamp]
    skills: list[Skill]
    ranker: Ranker


class SkillSearch:
    """Searches the enabled skills; what it prepares for a search is kept until they change."""

    def __init__(self, skills: Skills) -> None:
        self._skills = skills
        self._prepared: dict[tuple[str, frozenset[str] | None], _Prepared] = {}
        self._triggers: dict[str, tuple[_Stamp, tuple[str, ...]]] = {}

    async def find(
        self, need: str, *, user: str, names: Collection[str] | None = None, limit: int = 5
    ) -> list[Skill]:
        """Return the skills that fit best, best first.

        Args:
            names: The only skills that may be found; None for all.
        """
        return await asyncio.to_thread(self._find, need, user, names, limit)

    def _find(self, need: str, user: str, names: Collection[str] | None, limit: int) -> list[Skill]:
        prepared = self._prepare(user, None if names is None else frozenset(names))
        return [prepared.skills[hit.index] for hit in prepared.ranker.rank(need, limit=limit)]

    def _prepare(self, user: str, allowed: frozenset[str] | None) -> _Prepared:
        """Return what is searched; files that did not change are not read again."""
        enabled = self._skills.enabled(user=user)
        skills = [skill for skill in enabled if allowed is None or skill.name in allowed]
        stamps = [_stamp(skill) for skill in skills]
        known = self._prepared.get((user, allowed))
        if known is not None and known.enabled is enabled and known.stamps == stamps:
            return known
        texts = [
            searched_text(skill, self._triggers_of(skill, stamp))
            for skill, stamp in zip(skills, stamps, strict=True)
        ]
        known = _Prepared(enabled, stamps, skills, Ranker(texts, embeddings=default_embeddings()))
        if len(self._prepared) >= _MAX_RANKERS:
            self._prepared.clear()
        self._prepared[user, allowed] = known
        return known

    def _triggers_of(self, skill: Skill, stamp: _Stamp) -> tuple[str, ...]:
        if stamp is None:
            return ()
        known = self._triggers.get(str(skill.folder))
        if known is None or known[0] != stamp:
            if len(self._triggers) >= _MAX_READ:  # mostly files that are gone
                self._triggers.clear()
            known = self._triggers[str(skill.folder)] = (stamp, read_triggers(skill))
        return known[1]


def searched_text(skill: Skill, triggers: Sequence[str] = ()) -> str:
    """Return the text by which a skill is found."""
    return "\n".join([skill.name.replace("-", " "), skill.description, *triggers])


def read_triggers(skill: Skill) -> tuple[str, ...]:
    """Return the requests that should lead to a skill; none if its file cannot be read."""
    try:
        evals = read_evals(skill.folder)
    except InvalidInputError as error:
        logger.debug("triggers of the skill %s are not searched: %s", skill.name, error)
        return ()
    found = () if evals is None else evals.triggers.should
    return tuple(trigger[:MAX_TRIGGER_CHARS] for trigger in found[:MAX_TRIGGERS])


def _stamp(skill: Skill) -> _Stamp:
    try:
        about = os.lstat(f"{skill.folder}/{EVALS_FILE}")
    except OSError:
        return None
    return (about.st_mtime_ns, about.st_size, about.st_ino) if stat.S_ISREG(about.st_mode) else None
