"""The dependencies of lead agents and of the sub-agents that they start."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from deerflow.agents import AgentCache, Middleware
from deerflow.agents.agent_skills import AgentSkills
from deerflow.agents.middlewares import AgentKind, ChainMiddleware
from deerflow.agents.middlewares.concurrency_limits import ModelCallSlots
from deerflow.agents.middlewares.memory import AgentMemory, Count
from deerflow.agents.middlewares.model_errors import CircuitBreakers
from deerflow.agents.skill_offers import SkillOffers
from deerflow.config import Settings
from deerflow.context import RunContext
from deerflow.domain import RunOptions
from deerflow.lead.chain import build_chain
from deerflow.lead.custom_agents import Choices, CustomAgent, CustomAgents, make_setup_tool, make_update_tool
from deerflow.lead.skill_editors import SkillEditors
from deerflow.memory import MemoryService
from deerflow.models import ModelFactory
from deerflow.skills import Skill, Skills
from deerflow.skills.editor import SkillEditor
from deerflow.skills.secrets import SkillSecrets
from deerflow.subagents import (
    Background,
    InboxMiddleware,
    MarkdownSubagents,
    SubagentBuilder,
    SubagentConfig,
    SubagentExecutor,
    SubagentRegistry,
    TaskFactory,
    make_background_tools,
    make_task_tool,
    subagent_limit,
)
from deerflow.subagents.teams import RoleRegistry, TeamServices, make_team_tool
from deerflow.tools.catalog import get_available_tools, tool_groups
from deerflow.tools.memory import make_memory_tools
from deerflow.tools.skill_manage import Compare, make_skill_tool


@dataclass(frozen=True, eq=False)
class LeadDependencies:
    """The dependencies of lead agents for one value of the settings; new settings need a new instance."""

    settings: Settings
    models: ModelFactory
    executor: SubagentExecutor
    """Outlives the settings: it tracks all tasks of the process."""
    skills: Skills = field(default_factory=lambda: Skills(None))
    skill_editors: SkillEditors | None = None
    """Makes the editors of users' skills; None: agents cannot change skills."""
    compare_skill: Compare | None = None
    """Starts to compare a skill's draft with the version in use; None: a person decides about drafts."""
    checkpointer: BaseCheckpointSaver[Any] | None = None
    store: BaseStore | None = None
    mcp_tools: Sequence[BaseTool] = ()
    """Tools of MCP servers."""
    extra_tools: Sequence[BaseTool] = ()
    """Other external tools, such as those that call ACP agents."""
    middlewares: Sequence[Middleware] = ()
    """Middlewares of other packages."""
    subagent_types: Sequence[SubagentConfig] = ()
    """Sub-agents defined by Python classes of other packages."""
    agent_folders: Sequence[Path] = ()
    """Folders of Markdown files that define sub-agents; later folders override earlier ones."""
    custom_agents: CustomAgents | None = None
    """Custom agents of users, which can be created and changed in a conversation."""
    memories: MemoryService | None = None
    """The memory of users; None when there is none."""
    memory_models: ModelFactory | None = None
    """Creates the model used only by memory, if one is configured."""
    count_side_call: Count | None = None
    """Counts the tokens of model calls outside runs."""
    skill_secrets: SkillSecrets | None = None
    """The secrets that users gave to skills."""
    has_shell: Callable[[], bool] = lambda: True
    """Whether commands can run; without a shell, sub-agents that need one are not offered."""
    cache: AgentCache = field(default_factory=AgentCache)

    def offered_subagents(self) -> tuple[SubagentConfig, ...]:
        """Return the sub-agents that the lead agent may start now."""
        has_shell = self.has_shell()
        return tuple(config for config in self.subagents if has_shell or not config.needs_shell)

    def tools(
        self,
        model_name: str,
        *,
        delegates: bool = False,
        is_lead: bool = True,
        groups: Sequence[str] | None = None,
    ) -> list[BaseTool]:
        """Return the tools of an agent with this model, with the delegation tools if it delegates."""
        return get_available_tools(
            self.settings,
            groups=groups,
            model_name=model_name,
            models={model_name: self.models.get(model_name)},
            subagent_enabled=delegates,
            subagent_tools=[self.task_tool, *(self.lead_tools if is_lead else ())] if delegates else (),
            mcp_tools=self.mcp_tools,
            acp_tools=self.extra_tools,
        )

    def agent_tools(self, options: RunOptions, custom: CustomAgent | None) -> list[BaseTool]:
        """Return the tool that creates a custom agent or lets it change itself; none when that is off."""
        if self.custom_agents is None or not self.settings.agents_api.enabled:
            return []
        choices = Choices(
            models=self.models.names,
            tool_groups=tool_groups(self.settings),
            skills=lambda user: [skill.name for skill in self.skills.enabled(user=user)],
        )
        if options.is_bootstrap:
            return [make_setup_tool(self.custom_agents, choices)]
        return [make_update_tool(self.custom_agents, choices)] if custom is not None else []

    @cached_property
    def skill_offers(self) -> SkillOffers:
        """The sections of prompts about skills, and the tool that searches them."""
        return SkillOffers(self.skills, is_deferred=self.settings.skills.deferred_discovery)

    @cached_property
    def calls(self) -> ModelCallSlots | None:
        """Limits the concurrent model calls of these agents; None for no limit."""
        most = self.settings.llm_call.max_concurrent_calls
        return ModelCallSlots(most) if most else None

    @cached_property
    def breakers(self) -> CircuitBreakers:
        """The circuit breakers of the models."""
        return CircuitBreakers(self.settings.circuit_breaker)

    @cached_property
    def memory(self) -> AgentMemory | None:
        """The memory of these agents; None when memory is off."""
        settings = self.settings.memory
        if self.memories is None or not settings.is_on:
            return None
        count = {} if self.count_side_call is None else {"count": self.count_side_call}
        return AgentMemory(self.memories, settings, self.models, self.memory_models, **count)

    @cached_property
    def memory_tools(self) -> Sequence[BaseTool]:
        """The tools with which a lead agent edits the memory itself, if configured."""
        memory = self.memory
        if memory is None or memory.learns:
            return ()
        return make_memory_tools(memory.memories, memory.settings.backend_config)

    @cached_property
    def skill_tools(self) -> Sequence[BaseTool]:
        """The tool with which a lead agent writes skills, if `skill_evolution` is on."""
        editors = self.skill_editors
        if editors is None or self.compare_skill is None or not self.settings.skill_evolution.enabled:
            return ()
        return [make_skill_tool(partial(self._skill_editor, editors), self.compare_skill)]

    def _skill_editor(self, editors: SkillEditors, context: RunContext) -> SkillEditor:
        model_name = context.options.model_name or self.models.default_name
        return editors.of(context.user_id, model_name=model_name, count=context.spend)

    @cached_property
    def subagents(self) -> SubagentRegistry:
        """The sub-agents that these agents may start."""
        return SubagentRegistry(
            self.settings.subagents, MarkdownSubagents(self.agent_folders), self.subagent_types
        )

    @cached_property
    def tasks(self) -> TaskFactory:
        """Starts the tasks of these agents."""
        builder = SubagentBuilder(
            models=self.models,
            toolkit=_SubagentToolkit(self),
            skills=self.skill_offers,
            cache=self.cache,
            checkpointer=self.checkpointer,
            store=self.store,
        )
        return TaskFactory(self.executor, builder, self.subagents)

    @cached_property
    def task_tool(self) -> BaseTool:
        """The tool with which these agents start tasks."""
        return make_task_tool(self.tasks)

    @cached_property
    def background(self) -> Background:
        """The tasks that run while their lead agent continues."""
        return Background(self.tasks)

    @cached_property
    def lead_tools(self) -> Sequence[BaseTool]:
        """The tools with which a lead agent manages background tasks and starts teams."""
        tools, settings = make_background_tools(self.background), self.settings
        if not settings.teams.enabled:
            return tools
        roles = RoleRegistry(settings.teams, settings.subagents)
        return [*tools, make_team_tool(TeamServices.open(settings.teams, roles, self.tasks))]

    def chain(
        self, kind: AgentKind, *, skills: Sequence[Skill], subagent_limit: int, notes: ChainMiddleware | None
    ) -> list[Middleware]:
        """Return the middlewares of one kind of agent; see `build_chain`."""
        return build_chain(
            self.settings,
            kind=kind,
            model=self.models.create,
            subagent_limit=subagent_limit,
            notes=notes,
            calls=self.calls,
            breakers=self.breakers,
            memory=self.memory,
            skills=self._agent_skills(skills),
            plugins=self.middlewares,
        )

    def _agent_skills(self, skills: Sequence[Skill]) -> AgentSkills:
        return AgentSkills(
            skills,
            catalog=self.skills,
            root=self.settings.skills.container_path,
            readers=self.settings.summarization.skill_file_read_tool_names,
            secrets=self.skill_secrets,
        )


class _SubagentToolkit:
    """The tools and middlewares of sub-agents, from their lead agent's dependencies."""

    def __init__(self, dependencies: LeadDependencies) -> None:
        self._dependencies = dependencies

    def tools(self, model_name: str, *, may_delegate: bool) -> list[BaseTool]:
        return self._dependencies.tools(model_name, delegates=may_delegate, is_lead=False)

    def middlewares(
        self, options: RunOptions, *, skills: Sequence[Skill], may_delegate: bool
    ) -> Sequence[Middleware]:
        dependencies = self._dependencies
        return dependencies.chain(
            AgentKind.SUBAGENT,
            skills=skills,
            subagent_limit=subagent_limit(options, dependencies.settings) if may_delegate else 0,
            notes=InboxMiddleware(dependencies.executor),
        )
