"""Builds the lead agent: model, tools, prompt and middleware chain for one set of options."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.tools import BaseTool
from typing_extensions import override

from deerflow.agents import Agent, build_agent
from deerflow.agents.middlewares import AgentKind, ChainMiddleware
from deerflow.agents.skill_offers import SkillOffer
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.config import Settings
from deerflow.domain import DEFAULT_USER, LEAD_AGENT, RunOptions
from deerflow.lead.custom_agents import CustomAgent
from deerflow.lead.dependencies import LeadDependencies
from deerflow.lead.prompt import lead_prompt
from deerflow.subagents import BackgroundMiddleware, subagent_limit


class LeadAgents:
    """The lead agents for one set of dependencies, built once per relevant set of options."""

    def __init__(self, dependencies: LeadDependencies) -> None:
        self._dependencies = dependencies
        self._with_mcp_tools = self

    def with_mcp_tools(self, mcp_tools: Sequence[BaseTool]) -> "LeadAgents":
        """Return these agents with the given MCP tools; the same tools return the same object."""
        if mcp_tools is self._dependencies.mcp_tools:
            return self
        if mcp_tools is not self._with_mcp_tools._dependencies.mcp_tools:
            self._with_mcp_tools = LeadAgents(replace(self._dependencies, mcp_tools=mcp_tools))
        return self._with_mcp_tools

    def get(
        self, options: RunOptions, custom: CustomAgent | None = None, *, user: str = DEFAULT_USER
    ) -> Agent:
        """Return the agent for a run with these options: a custom agent or the default one."""
        dependencies = self._dependencies
        wanted = None if custom is None else custom.config.skills
        skills = dependencies.skill_offers.get(user, names=wanted)
        types = dependencies.offered_subagents() if options.subagent_enabled else ()
        key = ("lead", build_key(options, dependencies.settings), types, custom)
        return dependencies.cache.get(
            key,
            of=[dependencies, skills],
            build=lambda: make_lead_agent(options, dependencies, skills=skills, custom=custom),
        )


def make_lead_agent(
    options: RunOptions,
    dependencies: LeadDependencies,
    *,
    skills: SkillOffer,
    custom: CustomAgent | None = None,
) -> Agent:
    """Build a lead agent; `LeadAgents` caches the result."""
    limit = subagent_limit(options, dependencies.settings)
    agent_tools = dependencies.agent_tools(options, custom)
    return build_agent(
        dependencies.models.create(
            options.model_name,
            thinking_enabled=options.thinking_enabled,
            reasoning_effort=options.reasoning_effort,
        ),
        name=LEAD_AGENT,
        system_prompt=lead_prompt(
            **({} if custom is None else {"name": custom.name, "soul": custom.soul}),
            skills=skills.section,
            subagents=dependencies.offered_subagents() if limit else (),
            subagent_limit=limit,
            overflow=dependencies.settings.subagents.overflow,
            is_bootstrap=bool(agent_tools) and options.is_bootstrap,
            writes_skills=bool(dependencies.skill_tools),
        ),
        tools=[
            *dependencies.tools(
                options.model_name or dependencies.models.default_name,
                delegates=limit > 0,
                groups=None if custom is None else custom.config.tool_groups,
            ),
            *agent_tools,
            *skills.tools,
            *dependencies.memory_tools,
            *dependencies.skill_tools,
        ],
        middlewares=[
            *dependencies.chain(
                AgentKind.LEAD,
                skills=skills.skills,
                subagent_limit=limit,
                notes=BackgroundMiddleware(dependencies.background) if limit else None,
            ),
            *([ModelSettingsMiddleware(custom.model_settings)] if custom and custom.model_settings else []),
        ],
        checkpointer=dependencies.checkpointer,
        store=dependencies.store,
    )


class ModelSettingsMiddleware(ChainMiddleware):
    """Adds a custom agent's model settings, such as a lower temperature, to every model call."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self._settings = dict(settings)

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        return await handler(request.override(model_settings={**request.model_settings, **self._settings}))


def build_key(options: RunOptions, settings: Settings) -> Hashable:
    """Return the cache key: only the options that an agent's build depends on."""
    return (
        options.model_name,
        options.thinking_enabled,
        options.reasoning_effort,
        subagent_limit(options, settings),
        options.is_bootstrap,
    )
