"""What an agent is told about skills: a line for each, or only their names and a tool to search them.

An offer is made once per change of the skills, and agents are cached by its identity: to compare a thousand
skills at the start of every run would take longer than all other work.
"""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from langchain_core.tools import BaseTool

from deerflow.agents.prompts import skill_names_section, skills_section
from deerflow.domain import DEFAULT_USER
from deerflow.skills import Skill, Skills
from deerflow.skills.search import SkillSearch
from deerflow.tools.skills import make_find_skill_tool

MAX_LISTED = 50
"""The number of skills up to which the prompt describes each."""
_MAX_OFFERS = 128
_Key = tuple[str, frozenset[str] | None, bool]


@dataclass(frozen=True, slots=True)
class SkillOffer:
    """An agent's skills, the section of its prompt about them, and the tools that this section names."""

    skills: tuple[Skill, ...] = ()
    section: str = ""
    tools: tuple[BaseTool, ...] = ()


class SkillOffers:
    """The offers for one value of the settings, the most recent ones cached.

    Args:
        is_deferred: Always list names only, as `skills.deferred_discovery` says.
    """

    def __init__(self, skills: Skills, *, is_deferred: bool = False) -> None:
        self._skills = skills
        self._is_deferred = is_deferred
        self._search = SkillSearch(skills)
        self._offers: OrderedDict[_Key, tuple[tuple[Skill, ...], SkillOffer]] = OrderedDict()
        """The last offer of each user and agent, with the skills that it was made from."""
        self._equal: OrderedDict[object, SkillOffer] = OrderedDict()
        """The offers by their content: users with the same skills share one, and so their agents."""

    def get(
        self, user: str = DEFAULT_USER, *, names: Collection[str] | None = None, can_search: bool = True
    ) -> SkillOffer:
        """Return the offer for an agent of `user`; without changes on disk, the same one as before.

        Args:
            names: The only skills that the agent may use; None for all.
            can_search: The agent may call the tool that finds skills.
        """
        allowed = None if names is None else frozenset(names)
        enabled = self._skills.enabled(user=user)
        key = (user, allowed, can_search)
        known = self._offers.get(key)
        if known is None or known[0] is not enabled:
            known = (enabled, self._offer(enabled, allowed, can_search=can_search))
        _remember(self._offers, key, known)
        return known[1]

    def _offer(
        self, enabled: tuple[Skill, ...], allowed: frozenset[str] | None, *, can_search: bool
    ) -> SkillOffer:
        skills = tuple(skill for skill in enabled if allowed is None or skill.name in allowed)
        content = (skills, allowed, can_search)
        found = self._equal.get(content)
        if found is None:
            is_deferred = self._is_deferred or len(skills) > MAX_LISTED
            if not skills or not is_deferred or not can_search:
                found = SkillOffer(skills, skills_section(skills))
            else:
                tool = make_find_skill_tool(self._search, allowed)
                found = SkillOffer(skills, skill_names_section(skills), (tool,))
        _remember(self._equal, content, found)
        return found


def _remember(cache: OrderedDict[Any, Any], key: object, value: object) -> None:
    cache[key] = value
    cache.move_to_end(key)
    while len(cache) > _MAX_OFFERS:
        cache.popitem(last=False)
