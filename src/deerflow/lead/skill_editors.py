"""Makes the editors of users' custom skills: which folders they write, and which model reviews."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deerflow.agents.side_calls import side_call
from deerflow.config import LoadedSettings, Paths
from deerflow.models import ModelFactory
from deerflow.skills import Skills, custom_skills_of
from deerflow.skills.editor import SkillEditor
from deerflow.skills.review import SkillReviewer

logger = logging.getLogger(__name__)

Count = Callable[[str, Mapping[str, Any]], None]
"""Counts the usage of a review: the model's name and its tokens."""


@dataclass(frozen=True, eq=False, slots=True)
class SkillEditors:
    """Makes editors for one value of the settings."""

    loaded: LoadedSettings
    paths: Paths
    models: ModelFactory
    skills: Skills

    def of(
        self, user: str, *, model_name: str | None = None, count: Count = lambda model, usage: None
    ) -> SkillEditor:
        """Return the editor of a user's skills.

        Args:
            model_name: The model that reviews if `skill_evolution.moderation_model_name` names none; None
                for changes by people, which only the named model reviews.
        """
        return SkillEditor(
            custom_skills_of(self.loaded, self.paths, user),
            self.skills,
            user=user,
            reviewer=self._reviewer(model_name, count),
        )

    def _reviewer(self, model_name: str | None, count: Count) -> SkillReviewer | None:
        settings = self.loaded.settings.skill_evolution
        wanted = settings.moderation_model_name
        if wanted is not None and wanted not in self.models.names:
            logger.warning("skill_evolution.moderation_model_name: there is no model %s", wanted)
            wanted = None
        name = wanted or model_name
        if name is None or not self.models.can_reason(name):
            return None

        async def ask(prompt: str) -> str:
            await self.models.load(name)
            model = self.models.create(name, thinking_enabled=False)
            answer = await side_call(prompt, model, what="the review of a skill")
            count(name, answer.usage)
            return answer.text

        return SkillReviewer(ask, name, is_closed=settings.security_fail_closed)
