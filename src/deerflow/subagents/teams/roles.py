"""Registry of team roles: built-in and from the settings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from deerflow.config.subagents import SubagentsSettings
from deerflow.config.teams import TeamRoleSettings, TeamsSettings, TeamStage
from deerflow.errors import NotFoundError
from deerflow.subagents.config import SubagentConfig
from deerflow.subagents.teams.builtins import APPROVER, BUILTIN_ROLES, RULES, BuiltinRole

NEVER_FOR_MEMBERS = ("task", "ask_clarification", "present_files", "run_team")


@dataclass(frozen=True, slots=True)
class TeamRole:
    """A role in a team; a role without `config` is a person, who approves."""

    name: str
    description: str
    topics: tuple[str, ...] = ()
    stage: TeamStage = "work"
    config: SubagentConfig | None = None

    @property
    def is_person(self) -> bool:
        return self.config is None


class RoleRegistry:
    """The roles that plans may name."""

    def __init__(self, teams: TeamsSettings, subagents: SubagentsSettings) -> None:
        roles = {role.name: _builtin(role, subagents) for role in BUILTIN_ROLES}
        roles[APPROVER] = TeamRole(
            APPROVER,
            "A person who decides whether the work so far is right; the team waits.",
            stage="approve",
        )
        for name, custom in teams.roles.items():
            roles[name] = _custom(name, custom, subagents)
        self._roles: Mapping[str, TeamRole] = roles

    def __iter__(self) -> Iterator[TeamRole]:
        return iter(self._roles.values())

    def get(self, name: str) -> TeamRole:
        """Return the role called `name`; case, hyphens and spaces do not matter."""
        wanted = _plain(name)
        found = next((role for role in self if _plain(role.name) == wanted), None)
        if found is None:
            raise NotFoundError("role", name, known=self._roles)
        return found

    def among(self, names: Sequence[str]) -> list[TeamRole]:
        """Return the roles with these names, each once; all roles when none is named."""
        return list(dict.fromkeys(map(self.get, names))) if names else list(self)


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def _builtin(role: BuiltinRole, settings: SubagentsSettings) -> TeamRole:
    config = SubagentConfig(
        name=role.name,
        description=role.description,
        system_prompt=f"{role.prompt}\n\n{RULES}",
        tools=role.tools,
        disallowed_tools=NEVER_FOR_MEMBERS,
        max_turns=settings.max_turns or role.max_turns,
        timeout_seconds=settings.timeout_seconds,
        token_budget=settings.token_budget,
        thinking=settings.thinking,
    )
    override = settings.agents.get(role.name)
    if override is not None:
        config = replace(
            config,
            model=override.model or config.model,
            thinking=config.thinking if override.thinking is None else override.thinking,
            max_turns=override.max_turns or config.max_turns,
            timeout_seconds=override.timeout_seconds or config.timeout_seconds,
            skills=config.skills if override.skills is None else override.skills,
        )
    return TeamRole(role.name, role.description, role.topics, role.stage, config)


def _custom(name: str, custom: TeamRoleSettings, settings: SubagentsSettings) -> TeamRole:
    said = custom.model_fields_set
    config = SubagentConfig(
        name=name,
        description=custom.description,
        system_prompt=f"{custom.system_prompt.strip()}\n\n{RULES}",
        tools=None if custom.tools is None else (*custom.tools, "share_finding", "team_findings"),
        disallowed_tools=(*NEVER_FOR_MEMBERS, *(custom.disallowed_tools or ())),
        skills=custom.skills,
        model=custom.model,
        thinking=settings.thinking if custom.thinking is None else custom.thinking,
        max_turns=custom.max_turns if "max_turns" in said else settings.max_turns or custom.max_turns,
        timeout_seconds=custom.timeout_seconds if "timeout_seconds" in said else settings.timeout_seconds,
        token_budget=custom.token_budget or settings.token_budget,
    )
    return TeamRole(name, custom.description, custom.topics, custom.stage, config)
