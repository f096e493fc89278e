"""The lead agent, put together: model, tools, prompt and chain for one set of options."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from deerflow.agents import Agent, AgentCache, Middleware, build_agent
from deerflow.agents.middlewares import Audience
from deerflow.agents.middlewares.call_limit import CallGate
from deerflow.agents.middlewares.memory import Count, MemoryDesk
from deerflow.agents.middlewares.model_settings import ModelSettingsMiddleware
from deerflow.config import Settings
from deerflow.domain import LEAD_AGENT, RunOptions
from deerflow.lead.agent_tools import Choices, make_setup_tool, make_update_tool
from deerflow.lead.chain import build_chain
from deerflow.lead.custom import CustomAgent, CustomAgents
from deerflow.lead.prompt import lead_prompt
from deerflow.memory import Memories
from deerflow.models import ModelFactory
from deerflow.skills import Skill, Skills
from deerflow.subagents import (
    Background,
    BackgroundMiddleware,
    Delegation,
    InboxMiddleware,
    MarkdownSubagents,
    SubagentBuilder,
    SubagentExecutor,
    SubagentRegistry,
    make_background_tools,
    make_task_tool,
    subagent_limit,
)
from deerflow.subagents.teams import Office, RoleRegistry, make_team_tool
from deerflow.tools.catalog import get_available_tools, tool_groups
from deerflow.tools.mcp import ROUTING
from deerflow.tools.memory import make_memory_tools


@dataclass(frozen=True, eq=False)
class LeadRooms:
    """What lead agents are made of, for one value of the settings; new settings make new rooms."""

    settings: Settings
    models: ModelFactory
    executor: SubagentExecutor
    """Outlives the settings: it knows all tasks of the process."""
    skills: Skills = field(default_factory=lambda: Skills(None))
    checkpointer: BaseCheckpointSaver[Any] | None = None
    store: BaseStore | None = None
    mcp_tools: Sequence[BaseTool] = ()
    """Tools of MCP servers."""
    extra_tools: Sequence[BaseTool] = ()
    """Other tools from elsewhere, such as those that reach ACP agents."""
    agent_folders: Sequence[Path] = ()
    """Where Markdown files describe sub-agents; a later folder's count before an earlier one's."""
    custom_agents: CustomAgents | None = None
    """Agents of the users' own, which can be made and changed in conversation."""
    memories: Memories | None = None
    """What is remembered of users; None where nothing is."""
    memory_models: ModelFactory | None = None
    """Has the model that only the memory uses, where there is one."""
    count_beside: Count | None = None
    """Counts what calls beside the runs spend."""
    cache: AgentCache = field(default_factory=AgentCache)

    def tools(
        self,
        model_name: str,
        *,
        delegates: bool = False,
        is_lead: bool = True,
        groups: Sequence[str] | None = None,
    ) -> list[BaseTool]:
        """Return the tools of an agent with this model; one that delegates has those for it too."""
        beside = [*self.background_tools, *self.team_tools] if delegates and is_lead else []
        return get_available_tools(
            self.settings,
            groups=groups,
            model_name=model_name,
            models={model_name: self.models.get(model_name)},
            subagent_enabled=delegates,
            subagent_tools=[self.task_tool, *beside] if delegates else (),
            mcp_tools=self.mcp_tools,
            acp_tools=self.extra_tools,
        )

    def agent_tools(self, options: RunOptions, custom: CustomAgent | None) -> list[BaseTool]:
        """Return what makes an agent of the user's own, or lets it change itself; none where that is off."""
        if self.custom_agents is None or not self.settings.agents_api.enabled:
            return []
        choices = Choices(
            models=self.models.names,
            tool_groups=tool_groups(self.settings),
            skills=lambda: [skill.name for skill in self.skills.enabled()],
        )
        if options.is_bootstrap:
            return [make_setup_tool(self.custom_agents, choices)]
        return [make_update_tool(self.custom_agents, choices)] if custom is not None else []

    @cached_property
    def calls(self) -> CallGate | None:
        """How many model calls these agents may make at once; None for any number."""
        most = self.settings.llm_call.max_concurrent_calls
        return CallGate(most) if most else None

    @cached_property
    def memory(self) -> MemoryDesk | None:
        """How these agents remember; None where they do not."""
        settings = self.settings.memory
        if self.memories is None or not settings.is_on:
            return None
        count = {} if self.count_beside is None else {"count": self.count_beside}
        return MemoryDesk(self.memories, settings, self.models, self.memory_models, **count)

    @cached_property
    def memory_tools(self) -> Sequence[BaseTool]:
        """How a lead agent looks after the memory itself, where the settings want that."""
        desk = self.memory
        if desk is None or desk.learns:
            return ()
        return make_memory_tools(desk.memories, desk.settings.backend_config)

    @cached_property
    def routes_mcp(self) -> bool:
        """Whether words of the user point to tools of MCP servers."""
        return any(ROUTING in (tool.metadata or {}) for tool in self.mcp_tools)

    @cached_property
    def subagents(self) -> SubagentRegistry:
        """The sub-agents that these agents may start."""
        return SubagentRegistry(self.settings.subagents, MarkdownSubagents(self.agent_folders))

    @cached_property
    def delegation(self) -> Delegation:
        """How these agents hand work on."""
        builder = SubagentBuilder(
            models=self.models,
            outfit=_Outfit(self),
            skills=self.skills,
            cache=self.cache,
            checkpointer=self.checkpointer,
            store=self.store,
        )
        return Delegation(self.executor, builder, self.subagents)

    @cached_property
    def task_tool(self) -> BaseTool:
        """The tool through which these agents delegate."""
        return make_task_tool(self.delegation)

    @cached_property
    def background(self) -> Background:
        """The tasks that work while their lead agent goes on."""
        return Background(self.delegation)

    @cached_property
    def background_tools(self) -> Sequence[BaseTool]:
        """What a lead agent can do about them."""
        return make_background_tools(self.background)

    @cached_property
    def roles(self) -> RoleRegistry:
        """The roles that teams may have."""
        return RoleRegistry(self.settings.teams, self.settings.subagents)

    @cached_property
    def team_tools(self) -> Sequence[BaseTool]:
        """How a lead agent lets a team work."""
        if not self.settings.teams.enabled:
            return ()
        return [make_team_tool(Office.open(self.settings.teams, self.roles, self.delegation))]


class _Outfit:
    """What sub-agents get from the rooms of their lead agent."""

    def __init__(self, rooms: LeadRooms) -> None:
        self._rooms = rooms

    def tools(self, model_name: str, *, may_delegate: bool) -> list[BaseTool]:
        return self._rooms.tools(model_name, delegates=may_delegate, is_lead=False)

    def middlewares(self, options: RunOptions, *, may_delegate: bool) -> Sequence[Middleware]:
        rooms = self._rooms
        return build_chain(
            rooms.settings,
            audience=Audience.SUBAGENT,
            model=rooms.models.create,
            subagent_limit=subagent_limit(options, rooms.settings) if may_delegate else 0,
            notes=InboxMiddleware(rooms.executor),
            calls=rooms.calls,
            routes_mcp=rooms.routes_mcp,
        )


class LeadAgents:
    """The lead agents of one set of rooms, built once per set of options that matter."""

    def __init__(self, rooms: LeadRooms) -> None:
        self._rooms = rooms
        self._offering = self

    def offering(self, mcp_tools: Sequence[BaseTool]) -> "LeadAgents":
        """Return the same agents with these tools of MCP servers; the same tools give the same agents."""
        if mcp_tools is self._rooms.mcp_tools:
            return self
        if mcp_tools is not self._offering._rooms.mcp_tools:
            self._offering = LeadAgents(replace(self._rooms, mcp_tools=mcp_tools))
        return self._offering

    def get(self, options: RunOptions, custom: CustomAgent | None = None) -> Agent:
        """Return the agent for a run with these options, as the user's own agent or as the house's."""
        rooms = self._rooms
        wanted = None if custom is None else custom.config.skills
        skills = tuple(each for each in rooms.skills.enabled() if wanted is None or each.name in wanted)
        types = tuple(rooms.subagents) if options.subagent_enabled else ()
        key = ("lead", build_key(options, rooms.settings), skills, types, custom)
        return rooms.cache.get(
            key, of=[rooms], build=lambda: make_lead_agent(options, rooms, skills=skills, custom=custom)
        )


def make_lead_agent(
    options: RunOptions,
    rooms: LeadRooms,
    *,
    skills: Sequence[Skill] | None = None,
    custom: CustomAgent | None = None,
) -> Agent:
    """Build a lead agent; `LeadAgents` keeps what this returns."""
    limit = subagent_limit(options, rooms.settings)
    known = rooms.skills.enabled() if skills is None else skills
    agent_tools = rooms.agent_tools(options, custom)
    return build_agent(
        rooms.models.create(
            options.model_name,
            thinking_enabled=options.thinking_enabled,
            reasoning_effort=options.reasoning_effort,
        ),
        name=LEAD_AGENT,
        system_prompt=lead_prompt(
            **({} if custom is None else {"name": custom.name, "soul": custom.soul}),
            skills=known,
            subagents=tuple(rooms.subagents) if limit else (),
            subagent_limit=limit,
            overflow=rooms.settings.subagents.overflow,
            is_bootstrap=bool(agent_tools) and options.is_bootstrap,
        ),
        tools=[
            *rooms.tools(
                options.model_name or rooms.models.default_name,
                delegates=limit > 0,
                groups=None if custom is None else custom.config.tool_groups,
            ),
            *agent_tools,
            *rooms.memory_tools,
        ],
        middlewares=[
            *build_chain(
                rooms.settings,
                audience=Audience.LEAD,
                model=rooms.models.create,
                subagent_limit=limit,
                notes=BackgroundMiddleware(rooms.background) if limit else None,
                calls=rooms.calls,
                routes_mcp=rooms.routes_mcp,
                memory=rooms.memory,
            ),
            *_own_calls(custom),
        ],
        checkpointer=rooms.checkpointer,
        store=rooms.store,
    )


def _own_calls(custom: CustomAgent | None) -> list[Middleware]:
    settings = {} if custom is None else custom.model_settings
    return [ModelSettingsMiddleware(settings=settings)] if settings else []


def build_key(options: RunOptions, settings: Settings) -> Hashable:
    """Return what an agent's build depends on; other options must not cost another agent."""
    return (
        options.model_name,
        options.thinking_enabled,
        options.reasoning_effort,
        subagent_limit(options, settings),
        options.is_bootstrap,
    )
