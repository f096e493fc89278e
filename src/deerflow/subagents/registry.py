"""Registry of sub-agent types: built-in, from files and from the settings, with the settings' overrides."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace

from deerflow.config import SubagentsSettings
from deerflow.config.subagents import CustomSubagent, SubagentOverride
from deerflow.errors import NotFoundError
from deerflow.subagents.builtins import BUILTINS
from deerflow.subagents.config import TASK, SubagentConfig
from deerflow.subagents.markdown import MarkdownSubagent, MarkdownSubagents

logger = logging.getLogger(__name__)


class SubagentRegistry:
    """The sub-agent types that tasks may name.

    For equal names, settings take precedence over files, and files over built-ins.
    """

    def __init__(self, settings: SubagentsSettings, files: MarkdownSubagents | None = None) -> None:
        self._settings = settings
        self._files = files or MarkdownSubagents(())
        self._read: tuple[MarkdownSubagent, ...] = self._files.all()
        self._configs = _configs(settings, self._read)

    def __iter__(self) -> Iterator[SubagentConfig]:
        return iter(tuple(self._known().values()))

    def get(self, name: str, *, has_shell: bool = True) -> SubagentConfig:
        """Return the type called `name`; without a shell, types that need one are not found."""
        configs = self._known()
        known = [config.name for config in configs.values() if has_shell or not config.needs_shell]
        # Models vary the spelling of a name.
        wanted = name.strip().lower().replace("_", "-").replace(" ", "-")
        found = next((each for each in known if each.lower().replace("_", "-") == wanted), None)
        if found is None:
            raise NotFoundError("sub-agent", name, known=known)
        return configs[found]

    def _known(self) -> Mapping[str, SubagentConfig]:
        files = self._files.all()
        if files is not self._read:
            self._read = files
            self._configs = _configs(self._settings, files)
        return self._configs


def _configs(settings: SubagentsSettings, files: tuple[MarkdownSubagent, ...]) -> dict[str, SubagentConfig]:
    configs = {config.name: _with_globals(config, settings) for config in BUILTINS}
    for file in files:
        configs[file.name] = _from_file(file, settings)
    for name, custom in settings.custom_agents.items():
        configs[name] = _custom(name, custom, settings)
    for name, override in settings.agents.items():
        if name in configs:
            configs[name] = _with_override(configs[name], override)
        else:
            logger.warning("subagents.agents.%s names no sub-agent; known: %s", name, ", ".join(configs))
    return configs


def _with_globals(config: SubagentConfig, settings: SubagentsSettings) -> SubagentConfig:
    return replace(
        config,
        timeout_seconds=settings.timeout_seconds,
        max_turns=settings.max_turns or config.max_turns,
        token_budget=settings.token_budget,
        thinking=settings.thinking,
        disallowed_tools=_by_default(config.disallowed_tools, settings),
    )


def _from_file(file: MarkdownSubagent, settings: SubagentsSettings) -> SubagentConfig:
    config = SubagentConfig(name=file.name, description=file.description, system_prompt=file.system_prompt)
    return replace(
        _with_globals(config, settings),
        tools=file.tools,
        disallowed_tools=_by_default((TASK,), settings)
        if file.disallowed_tools is None
        else file.disallowed_tools,
        skills=file.skills,
        model=file.model,
        thinking=settings.thinking if file.thinking is None else file.thinking,
        max_turns=file.max_turns or settings.max_turns or config.max_turns,
        timeout_seconds=file.timeout_seconds or settings.timeout_seconds,
        needs_shell=file.tools == ("bash",),
    )


def _custom(name: str, custom: CustomSubagent, settings: SubagentsSettings) -> SubagentConfig:
    """Return a type from `custom_agents`; its own values take precedence over those for all types."""
    said = custom.model_fields_set
    denied = custom.disallowed_tools or ()
    return SubagentConfig(
        name=name,
        description=custom.description,
        system_prompt=custom.system_prompt,
        tools=custom.tools,
        disallowed_tools=denied if "disallowed_tools" in said else _by_default(denied, settings),
        skills=custom.skills,
        model=custom.model,
        thinking=settings.thinking if custom.thinking is None else custom.thinking,
        max_turns=custom.max_turns if "max_turns" in said else settings.max_turns or custom.max_turns,
        timeout_seconds=custom.timeout_seconds if "timeout_seconds" in said else settings.timeout_seconds,
        token_budget=custom.token_budget or settings.token_budget,
        needs_shell=custom.tools == ("bash",),
    )


def _by_default(denied: tuple[str, ...], settings: SubagentsSettings) -> tuple[str, ...]:
    """Return the default deny-list; it includes `task` unless `max_depth` allows nested tasks."""
    if settings.max_depth == 1:
        return denied
    return tuple(name for name in denied if name != TASK)


def _with_override(config: SubagentConfig, override: SubagentOverride) -> SubagentConfig:
    return replace(
        config,
        timeout_seconds=override.timeout_seconds or config.timeout_seconds,
        max_turns=override.max_turns or config.max_turns,
        model=override.model or config.model,
        thinking=config.thinking if override.thinking is None else override.thinking,
        skills=config.skills if override.skills is None else override.skills,
        token_budget=override.token_budget or config.token_budget,
    )
