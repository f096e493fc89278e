"""Build the agent of a sub-agent type, once per set of options."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from deerflow.agents import AgentCache, Middleware, build_agent
from deerflow.agents.first_answer import FirstAnswer
from deerflow.agents.prompts import join_parts
from deerflow.agents.skill_offers import SkillOffer, SkillOffers
from deerflow.domain import RunOptions
from deerflow.models import ModelFactory
from deerflow.skills import Skill
from deerflow.subagents.config import INHERIT, NEVER_FOR_SUBAGENTS, TASK, SubagentConfig, TaskAgent
from deerflow.tools.skills import FIND_SKILL

logger = logging.getLogger(__name__)


class SubagentTools(Protocol):
    """Tools and middlewares that sub-agents get, before their type narrows them."""

    def tools(self, model_name: str, *, may_delegate: bool) -> Sequence[BaseTool]:
        """Return the tools of a lead agent with this model; a sub-agent gets those that its type allows."""

    def middlewares(
        self, options: RunOptions, *, skills: Sequence[Skill], may_delegate: bool
    ) -> Sequence[Middleware]:
        """Return the middlewares of a sub-agent that may use these skills."""


@dataclass(frozen=True, eq=False, slots=True)
class SubagentBuilder:
    """Builds sub-agents from one value of the settings."""

    models: ModelFactory
    toolkit: SubagentTools
    skills: SkillOffers
    cache: AgentCache
    checkpointer: BaseCheckpointSaver[Any] | None = None
    store: BaseStore | None = None
    extra_tools: Sequence[BaseTool] = ()
    """Offered in addition to those of the toolkit."""

    def agent(
        self, config: SubagentConfig, options: RunOptions, *, user: str, may_delegate: bool = False
    ) -> TaskAgent:
        """Return the agent of a type for a run of `user` with these options."""
        can_search = is_allowed(FIND_SKILL, config)
        skills = self.skills.get(user, names=config.skills, can_search=can_search)
        # Without limits on turns and time: the executor applies them, so the agent does not depend on them.
        definition = (config.name, config.system_prompt, config.tools, config.disallowed_tools)
        nesting = options.max_concurrent_subagents if may_delegate else None
        key = ("subagent", definition, self._model_key(config, options), nesting)
        return self.cache.get(
            key,
            of=[self, skills, *config.extra_tools],
            build=lambda: self._build(config, options, skills, may_delegate=may_delegate),
        )

    def model_name(self, config: SubagentConfig, options: RunOptions) -> str:
        """Return the name of the model that a sub-agent uses."""
        return self._model_key(config, options)[0] or self.models.default_name

    def model(self, config: SubagentConfig, options: RunOptions) -> BaseChatModel:
        """Return the model that a sub-agent uses."""
        name, thinking_enabled, reasoning_effort = self._model_key(config, options)
        return self.models.create(name, thinking_enabled=thinking_enabled, reasoning_effort=reasoning_effort)

    def _build(
        self, config: SubagentConfig, options: RunOptions, skills: SkillOffer, *, may_delegate: bool
    ) -> TaskAgent:
        if config.model != INHERIT and not self._has_own_model(config):
            # Files written for other programs name models that are not configured: use the run's model.
            logger.warning(
                "sub-agent %s names model %s, which is not configured; it uses the run's model",
                config.name,
                config.model,
            )
        own_tools = self.toolkit.tools(self.model_name(config, options), may_delegate=may_delegate)
        model = self.model(config, options)
        prompt = join_parts([config.system_prompt.strip(), skills.section])
        tools = allowed_tools(
            config,
            [*own_tools, *self.extra_tools, *config.extra_tools, *skills.tools],
            may_delegate=may_delegate,
        )
        chain = self.toolkit.middlewares(options, skills=skills.skills, may_delegate=may_delegate)
        graph = build_agent(
            model,
            name=config.name,
            system_prompt=prompt,
            tools=tools,
            middlewares=chain,
            checkpointer=self.checkpointer,
            store=self.store,
        )
        first_answer = FirstAnswer.of(
            model, system_prompt=prompt, tools=tools, middlewares=chain, store=self.store
        )
        return TaskAgent(graph, first_answer)

    def _model_key(self, config: SubagentConfig, options: RunOptions) -> tuple[str | None, bool, str | None]:
        name = config.model if self._has_own_model(config) else options.model_name
        if config.thinking is None:
            return name, options.thinking_enabled, options.reasoning_effort
        return name, config.thinking, options.reasoning_effort if config.thinking else None

    def _has_own_model(self, config: SubagentConfig) -> bool:
        return config.model != INHERIT and config.model in self.models.names


def allowed_tools(
    config: SubagentConfig, tools: Sequence[BaseTool], *, may_delegate: bool = False
) -> list[BaseTool]:
    """Return the tools that a type may use: those on its allow-list and not on its deny-list."""
    denied = NEVER_FOR_SUBAGENTS | set(config.disallowed_tools) | (set() if may_delegate else {TASK})
    if "bash" in denied:  # Python code could run any command
        denied |= {"python"}
    return [tool for tool in tools if is_allowed(tool.name, config) and tool.name not in denied]


def is_allowed(tool: str, config: SubagentConfig) -> bool:
    """Return whether a type may use a tool, by its allow-list and its deny-list."""
    return (config.tools is None or tool in config.tools) and tool not in config.disallowed_tools
