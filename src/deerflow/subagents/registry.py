"""Which sub-agents there are: the built-in ones, your own, and what the settings change about them."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace

from deerflow.config import SubagentsSettings
from deerflow.config.subagents import CustomSubagent, SubagentOverride
from deerflow.errors import NotFoundError
from deerflow.subagents.builtins import BUILTINS
from deerflow.subagents.config import SubagentConfig

logger = logging.getLogger(__name__)


class SubagentRegistry:
    """The types that tasks may name."""

    def __init__(self, settings: SubagentsSettings) -> None:
        configs = {config.name: _with_globals(config, settings) for config in BUILTINS}
        for name, custom in settings.custom_agents.items():
            configs[name] = _custom(name, custom, settings)
        for name, override in settings.agents.items():
            if name in configs:
                configs[name] = _with_override(configs[name], override)
            else:
                logger.warning("subagents.agents.%s names no sub-agent; known: %s", name, ", ".join(configs))
        self._configs: Mapping[str, SubagentConfig] = configs

    def __iter__(self) -> Iterator[SubagentConfig]:
        return iter(self._configs.values())

    def get(self, name: str, *, has_shell: bool = True) -> SubagentConfig:
        """Return the type called `name`; where no commands can run, those that need a shell are unknown."""
        known = [config.name for config in self if has_shell or not config.needs_shell]
        # Models write the same name in several ways.
        wanted = name.strip().lower().replace("_", "-").replace(" ", "-")
        found = next((each for each in known if each.lower().replace("_", "-") == wanted), None)
        if found is None:
            raise NotFoundError("sub-agent", name, known=known)
        return self._configs[found]


def _with_globals(config: SubagentConfig, settings: SubagentsSettings) -> SubagentConfig:
    return replace(
        config,
        timeout_seconds=settings.timeout_seconds,
        max_turns=settings.max_turns or config.max_turns,
    )


def _custom(name: str, custom: CustomSubagent, settings: SubagentsSettings) -> SubagentConfig:
    """Return one of the user's own; what it says itself stands before what is said for all."""
    said = custom.model_fields_set
    return SubagentConfig(
        name=name,
        description=custom.description,
        system_prompt=custom.system_prompt,
        tools=custom.tools,
        disallowed_tools=custom.disallowed_tools or (),
        skills=custom.skills,
        model=custom.model,
        max_turns=custom.max_turns if "max_turns" in said else settings.max_turns or custom.max_turns,
        timeout_seconds=custom.timeout_seconds if "timeout_seconds" in said else settings.timeout_seconds,
        needs_shell=custom.tools == ("bash",),
    )


def _with_override(config: SubagentConfig, override: SubagentOverride) -> SubagentConfig:
    return replace(
        config,
        timeout_seconds=override.timeout_seconds or config.timeout_seconds,
        max_turns=override.max_turns or config.max_turns,
        model=override.model or config.model,
        skills=config.skills if override.skills is None else override.skills,
    )
