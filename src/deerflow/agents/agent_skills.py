"""The skills that one agent may activate, with their secrets, and the answers about those that it may not."""

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence

from deerflow.agents.state import ActiveSkill
from deerflow.context import RunContext
from deerflow.domain.language import is_chinese
from deerflow.skills import Skill, Skills
from deerflow.skills.activation import SkillPaths, resources, unknown_skill
from deerflow.skills.secrets import REQUEST_SECRETS, CommandSecrets, SkillSecrets

SET_SECRETS = (
    "The skill {skill} needs secrets that are not set: {names}. Tell the user to set each with `deerflow "
    "skills secrets set {skill} NAME` or PUT /api/skills/{skill}/secrets; a secret belongs into no message."
)
_OFF = (
    (
        "The skill “{name}” is switched off. Switch it on in the settings or with `deerflow skills enable "
        "{name}`, then send this again."
    ),
    "技能“{name}”已停用。请在设置中启用，或运行 `deerflow skills enable {name}`，然后重新发送。",
)
_NOT_FOR_AGENT = ("This agent may not use the skill “{name}”.", "此智能体不能使用技能“{name}”。")
_NO_SECRETS = (
    (
        "The skill “{name}” needs secrets that are not set: {missing}. Set each with `deerflow skills "
        "secrets set {name} NAME` or PUT /api/skills/{name}/secrets, then send this again."
    ),
    (
        "技能“{name}”需要尚未设置的密钥：{missing}。请用 `deerflow skills secrets set {name} NAME` "
        "或 PUT /api/skills/{name}/secrets 逐个设置，然后重新发送。"
    ),
)
"""Answers to the user, in English and Chinese."""


class AgentSkills:
    """The skills that one agent may activate; concurrent runs share it."""

    def __init__(
        self,
        skills: Sequence[Skill],
        *,
        catalog: Skills,
        root: str,
        readers: Collection[str],
        secrets: SkillSecrets | None = None,
    ) -> None:
        """Hold the skills.

        Args:
            catalog: All skills, for messages about others.
            root: Path of the skills in the sandbox.
            readers: Names of the tools that read files.
        """
        self.by_name: Mapping[str, Skill] = {skill.name: skill for skill in skills}
        self.paths = SkillPaths(skills, root)
        self.catalog = catalog
        self.readers = frozenset(readers)
        self._secrets = secrets

    def has_secrets(self, context: RunContext) -> bool:
        """Return whether the user has set secrets of any skill, or sent some with the run."""
        if self._secrets is None:
            return False
        return REQUEST_SECRETS in context.extra or self._secrets.has_any(context.user_id)

    async def missing_secrets(self, skill: Skill, context: RunContext) -> str | None:
        """Return a note for the model about required secrets that are not set; None if there are none."""
        missing = await self.unset(skill, context)
        return SET_SECRETS.format(skill=skill.name, names=", ".join(missing)) if missing else None

    async def unset(self, skill: Skill, context: RunContext) -> list[str]:
        """Return the names of the required secrets of a skill that are not set."""
        required = [secret.name for secret in skill.required_secrets if not secret.is_optional]
        if not required or self._secrets is None:
            return required
        known = await asyncio.to_thread(self._secrets.names, context.user_id, skill.name)
        known |= (await self._sent(context)).keys()
        return [name for name in required if name not in known]

    async def _sent(self, context: RunContext) -> Mapping[str, str]:
        """Return the secrets that were sent with the run."""
        sealed = context.extra.get(REQUEST_SECRETS)
        if self._secrets is None or not isinstance(sealed, str):
            return {}
        return await asyncio.to_thread(self._secrets.unseal, sealed)

    async def command_secrets(
        self, context: RunContext, code: object, active: Sequence[ActiveSkill], named: Sequence[Skill]
    ) -> CommandSecrets | str | None:
        """Return the secrets of a call, or the error if a skill whose files it uses lacks one.

        A command or program gets the secrets of a skill that is active, or whose folder it names, if it names
        the folder, one of its files or the secret itself. With `secrets-autonomous: false` the user must have
        activated the skill.
        """
        if self._secrets is None:
            return None
        for skill in named:
            if note := await self.missing_secrets(skill, context):
                return note
        sent = await self._sent(context)
        redact = await asyncio.to_thread(self._secrets.redactor, context.user_id, sent.values())
        if redact is None:
            return None
        if not isinstance(code, str):
            return CommandSecrets(redact)
        by_user = {each["name"] for each in active if each["activated_by"] == "slash"}
        candidates = {each["name"] for each in active} | {skill.name for skill in named}
        stored = await asyncio.to_thread(self._secrets.values, context.user_id)
        environment: dict[str, str] = {}
        for name in sorted(candidates & self.by_name.keys()):
            skill = self.by_name[name]
            if not skill.secrets_autonomous and name not in by_user:
                continue
            wanted = _wanted(skill, {**stored.get(name, {}), **sent})
            if wanted and (skill in named or await asyncio.to_thread(_needs, code, skill, wanted)):
                environment |= wanted
        return CommandSecrets(redact, environment)


def _wanted(skill: Skill, values: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the secrets that a skill names."""
    return {secret.name: values[secret.name] for secret in skill.required_secrets if secret.name in values}


def _needs(code: str, skill: Skill, names: Collection[str]) -> bool:
    """Return whether code names one of a skill's secrets or files."""
    words = set(re.findall(r"\w+", code))
    return not words.isdisjoint(names) or any(name in code for name in resources(skill.folder) if "/" in name)


async def slash_answer(skills: AgentSkills, name: str, text: str, context: RunContext) -> str | None:
    """Return the answer to a message with a skill that cannot be used; None if it can, or is plain text."""
    language = 1 if is_chinese(text) else 0
    skill = skills.by_name.get(name)
    if skill is not None:
        missing = await skills.unset(skill, context)
        return _NO_SECRETS[language].format(name=name, missing=", ".join(missing)) if missing else None
    catalog, user_id = skills.catalog, context.user_id
    known = {each.name for each in await asyncio.to_thread(lambda: catalog.all(user=user_id))}
    if name in known:
        enabled = {each.name for each in await asyncio.to_thread(lambda: catalog.enabled(user=user_id))}
        return (_NOT_FOR_AGENT if name in enabled else _OFF)[language].format(name=name)
    return unknown_skill(text, name, skills.by_name, is_chinese=bool(language))
