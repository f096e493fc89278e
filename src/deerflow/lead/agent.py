"""The lead agent, put together: model, tools, prompt and chain for one set of options."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from deerflow.agents import Agent, AgentCache, build_agent
from deerflow.agents.middlewares import Audience
from deerflow.config import Settings
from deerflow.domain import LEAD_AGENT, RunOptions
from deerflow.lead.chain import build_chain
from deerflow.lead.prompt import lead_prompt
from deerflow.models import ModelFactory
from deerflow.skills import Skill, Skills
from deerflow.subagents import SubagentBuilder, SubagentExecutor, SubagentRegistry, make_task_tool
from deerflow.tools.catalog import get_available_tools


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
    extra_tools: Sequence[BaseTool] = ()
    """Tools from elsewhere, such as MCP servers."""
    cache: AgentCache = field(default_factory=AgentCache)

    def tools(self, model_name: str, *, task_tool: BaseTool | None = None) -> list[BaseTool]:
        """Return the tools of an agent with this model; with `task_tool` it may delegate."""
        return get_available_tools(
            self.settings,
            model=self.models.get(model_name),
            subagent_enabled=task_tool is not None,
            task_tool=task_tool,
            extra=self.extra_tools,
        )

    @cached_property
    def subagents(self) -> SubagentRegistry:
        """The sub-agents that these agents may start."""
        return SubagentRegistry(self.settings.subagents)

    @cached_property
    def task_tool(self) -> BaseTool:
        """The tool through which these agents delegate."""
        builder = SubagentBuilder(
            models=self.models,
            tools=self.tools,
            middlewares=lambda: build_chain(
                self.settings, audience=Audience.SUBAGENT, model=self.models.create
            ),
            skills=self.skills,
            cache=self.cache,
            checkpointer=self.checkpointer,
            store=self.store,
        )
        return make_task_tool(self.executor, builder, self.subagents)


class LeadAgents:
    """The lead agents of one set of rooms, built once per set of options that matter."""

    def __init__(self, rooms: LeadRooms) -> None:
        self._rooms = rooms

    def get(self, options: RunOptions) -> Agent:
        """Return the agent for a run with these options."""
        rooms = self._rooms
        skills = rooms.skills.enabled()
        key = ("lead", build_key(options, rooms.settings), skills)
        return rooms.cache.get(key, of=[rooms], build=lambda: make_lead_agent(options, rooms, skills=skills))


def make_lead_agent(options: RunOptions, rooms: LeadRooms, *, skills: Sequence[Skill] | None = None) -> Agent:
    """Build a lead agent; `LeadAgents` keeps what this returns."""
    limit = subagent_limit(options, rooms.settings)
    known = rooms.skills.enabled() if skills is None else skills
    return build_agent(
        rooms.models.create(
            options.model_name,
            thinking_enabled=options.thinking_enabled,
            reasoning_effort=options.reasoning_effort,
        ),
        name=LEAD_AGENT,
        system_prompt=lead_prompt(
            skills=known,
            subagents=tuple(rooms.subagents) if limit else (),
            subagent_limit=limit,
        ),
        tools=rooms.tools(
            options.model_name or rooms.models.default_name, task_tool=rooms.task_tool if limit else None
        ),
        middlewares=build_chain(
            rooms.settings, audience=Audience.LEAD, model=rooms.models.create, subagent_limit=limit
        ),
        checkpointer=rooms.checkpointer,
        store=rooms.store,
    )


def subagent_limit(options: RunOptions, settings: Settings) -> int:
    """Return how many tasks one reply may start, within what the settings allow; 0 when they are off."""
    least, most = settings.subagents.concurrency_range
    return max(least, min(options.max_concurrent_subagents, most)) if options.subagent_enabled else 0


def build_key(options: RunOptions, settings: Settings) -> Hashable:
    """Return what an agent's build depends on; other options must not cost another agent."""
    return (
        options.model_name,
        options.thinking_enabled,
        options.reasoning_effort,
        subagent_limit(options, settings),
    )
