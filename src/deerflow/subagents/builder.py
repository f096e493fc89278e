"""Builds the agent behind a type of sub-agent, once per set of options."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from deerflow.agents import Agent, AgentCache, Middleware, build_agent
from deerflow.agents.prompts import join_parts, skills_section
from deerflow.domain import RunOptions
from deerflow.models import ModelFactory
from deerflow.skills import Skill, Skills
from deerflow.subagents.config import INHERIT, NEVER_FOR_SUBAGENTS, SubagentConfig


@dataclass(frozen=True, eq=False, slots=True)
class SubagentBuilder:
    """Everything a sub-agent is made of, for one value of the settings."""

    models: ModelFactory
    tools: Callable[[str], Sequence[BaseTool]]
    """Returns the tools of a lead agent with this model; a sub-agent gets those its type allows."""
    middlewares: Callable[[], Sequence[Middleware]]
    skills: Skills
    cache: AgentCache
    checkpointer: BaseCheckpointSaver[Any] | None = None
    store: BaseStore | None = None

    def agent(self, config: SubagentConfig, options: RunOptions) -> Agent:
        """Return the compiled agent of a type for a run with these options."""
        skills = self._skills(config)
        # Limits on turns and time are the executor's business and need no agent of their own.
        look = (config.name, config.system_prompt, config.tools, config.disallowed_tools)
        key = ("subagent", look, _model_key(config, options), skills)
        return self.cache.get(key, of=[self], build=lambda: self._build(config, options, skills))

    def model_name(self, config: SubagentConfig, options: RunOptions) -> str:
        """Return the name of the model that a sub-agent uses."""
        return _model_key(config, options)[0] or self.models.default_name

    def _build(self, config: SubagentConfig, options: RunOptions, skills: tuple[Skill, ...]) -> Agent:
        name, thinking_enabled, reasoning_effort = _model_key(config, options)
        return build_agent(
            self.models.create(name, thinking_enabled=thinking_enabled, reasoning_effort=reasoning_effort),
            name=config.name,
            system_prompt=join_parts([config.system_prompt.strip(), skills_section(skills)]),
            tools=allowed_tools(config, self.tools(self.model_name(config, options))),
            middlewares=self.middlewares(),
            checkpointer=self.checkpointer,
            store=self.store,
        )

    def _skills(self, config: SubagentConfig) -> tuple[Skill, ...]:
        enabled = self.skills.enabled()
        if config.skills is None:
            return enabled
        return tuple(skill for skill in enabled if skill.name in config.skills)


def allowed_tools(config: SubagentConfig, tools: Sequence[BaseTool]) -> list[BaseTool]:
    """Return the tools a type may use: first its allow-list, then its deny-list, which wins."""
    denied = NEVER_FOR_SUBAGENTS | set(config.disallowed_tools)
    return [
        tool
        for tool in tools
        if (config.tools is None or tool.name in config.tools) and tool.name not in denied
    ]


def _model_key(config: SubagentConfig, options: RunOptions) -> tuple[str | None, bool, str | None]:
    name = options.model_name if config.model == INHERIT else config.model
    return name, options.thinking_enabled, options.reasoning_effort
