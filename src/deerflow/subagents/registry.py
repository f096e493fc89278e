"""Registry of sub-agent types: built-in, Python classes, files and settings, with the settings' overrides."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from deerflow.config import SubagentsSettings
from deerflow.config.agents import CustomSubagent
from deerflow.errors import NotFoundError
from deerflow.subagents.builtins import BUILTINS
from deerflow.subagents.config import TASK, SubagentConfig
from deerflow.subagents.markdown import MarkdownSubagent, MarkdownSubagents

logger = logging.getLogger(__name__)


class SubagentRegistry:
    """The sub-agent types that tasks may name.

    For equal names, settings take precedence over files, files over Python classes, and those over built-ins.
    """

    def __init__(
        self,
        settings: SubagentsSettings,
        files: MarkdownSubagents | None = None,
        classes: Sequence[SubagentConfig] = (),
    ) -> None:
        self._settings = settings
        self._classes = classes
        self._files = files or MarkdownSubagents(())
        self._read: tuple[MarkdownSubagent, ...] = self._files.all()
        self._configs = _configs(settings, self._read, classes)

    def __iter__(self) -> Iterator[SubagentConfig]:
        return iter(tuple(self._current().values()))

    def get(self, name: str, *, has_shell: bool = True) -> SubagentConfig:
        """Return the type called `name`; without a shell, types that need one are not found."""
        configs = self._current()
        known = [config.name for config in configs.values() if has_shell or not config.needs_shell]
        # Models vary the spelling of a name.
        wanted = name.strip().lower().replace("_", "-").replace(" ", "-")
        found = next((each for each in known if each.lower().replace("_", "-") == wanted), None)
        if found is None:
            raise NotFoundError("sub-agent", name, known=known)
        return configs[found]

    def _current(self) -> Mapping[str, SubagentConfig]:
        files = self._files.all()
        if files is not self._read:
            self._read = files
            self._configs = _configs(self._settings, files, self._classes)
        return self._configs


def configured(config: SubagentConfig, settings: SubagentsSettings, **own: Any) -> SubagentConfig:
    """Return a type with the limits for all types; `own` values other than None take precedence."""
    for_all = {
        "timeout_seconds": settings.timeout_seconds,
        "max_turns": settings.max_turns,
        "token_budget": settings.token_budget,
        "thinking": settings.thinking,
    }
    values = for_all | {name: value for name, value in own.items() if value is not None}
    return replace(config, **{name: value for name, value in values.items() if value is not None})


def custom_subagent(name: str, custom: CustomSubagent, settings: SubagentsSettings) -> SubagentConfig:
    """Return a type described in the settings; values that it sets take precedence over those for all."""
    config = SubagentConfig(name, custom.description, custom.system_prompt)
    own = {field: getattr(custom, field) for field in custom.model_fields_set & set(SubagentConfig.__slots__)}
    denied = custom.disallowed_tools or ()
    own["disallowed_tools"] = denied if "disallowed_tools" in own else _denied_by_default(denied, settings)
    return configured(config, settings, **own, needs_shell=custom.tools == ("bash",))


def overridden(config: SubagentConfig, settings: SubagentsSettings) -> SubagentConfig:
    """Return a type with the values that `subagents.agents` sets for it."""
    override = settings.agents.get(config.name)
    fields = override.model_fields_set & set(SubagentConfig.__slots__) if override is not None else ()
    values = {field: getattr(override, field) for field in fields}
    return replace(config, **{field: value for field, value in values.items() if value is not None})


def _configs(
    settings: SubagentsSettings, files: tuple[MarkdownSubagent, ...], classes: Sequence[SubagentConfig]
) -> dict[str, SubagentConfig]:
    configs = {
        config.name: configured(
            config, settings, disallowed_tools=_denied_by_default(config.disallowed_tools, settings)
        )
        for config in (*BUILTINS, *classes)
    }
    configs |= {file.name: _from_file(file, settings) for file in files}
    configs |= {
        name: custom_subagent(name, custom, settings) for name, custom in settings.custom_agents.items()
    }
    for name in settings.agents.keys() - configs.keys():
        logger.warning("subagents.agents.%s names no sub-agent; known: %s", name, ", ".join(configs))
    return {name: overridden(config, settings) for name, config in configs.items()}


def _from_file(file: MarkdownSubagent, settings: SubagentsSettings) -> SubagentConfig:
    config = SubagentConfig(file.name, file.description, file.system_prompt)
    own = {field: getattr(file, field) for field in file.model_fields_set}
    if file.disallowed_tools is None:
        own["disallowed_tools"] = _denied_by_default((TASK,), settings)
    return configured(config, settings, **own, needs_shell=file.tools == ("bash",))


def _denied_by_default(denied: tuple[str, ...], settings: SubagentsSettings) -> tuple[str, ...]:
    """Return the default deny-list; it includes `task` unless `max_depth` allows nested tasks."""
    return denied if settings.max_depth == 1 else tuple(name for name in denied if name != TASK)
