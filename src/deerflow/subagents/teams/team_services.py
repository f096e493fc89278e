"""What all teams share: roles, findings, experience, and the execution of their tasks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from langchain_core.tools import BaseTool

from deerflow.agents import Middleware
from deerflow.config.teams import TeamsSettings
from deerflow.context import RunContext
from deerflow.domain import RunOptions
from deerflow.errors import DeerFlowError
from deerflow.models.discovery import OFFLINE_TYPE
from deerflow.subagents.builder import Outfit, SubagentBuilder
from deerflow.subagents.config import (
    ResumeAnswer,
    SubagentConfig,
    SubagentResult,
    SubagentStatus,
    TaskSpec,
    total_limit,
)
from deerflow.subagents.delegation import Delegation
from deerflow.subagents.executor import SubagentExecutor
from deerflow.subagents.teams.board import BETWEEN, Boards, make_board_tools
from deerflow.subagents.teams.experience import Experience
from deerflow.subagents.teams.roles import RoleRegistry


@dataclass(frozen=True, slots=True)
class TeamCall:
    """The identity of a team, the same after a restart, and the context of its run."""

    team_id: str
    thread_id: str
    """Prefix of the checkpoint threads of its tasks."""
    context: RunContext


@dataclass(frozen=True, eq=False, slots=True)
class TeamServices:
    """The dependencies of teams, for one value of the settings."""

    settings: TeamsSettings
    roles: RoleRegistry
    executor: SubagentExecutor
    builder: SubagentBuilder
    boards: Boards
    experience: Experience

    @classmethod
    def open(cls, settings: TeamsSettings, roles: RoleRegistry, delegation: Delegation) -> "TeamServices":
        """Create the services; members get the tools of sub-agents and those for shared findings."""
        boards = Boards()
        outfit = _TeamOutfit(delegation.builder.outfit, make_board_tools(boards))
        builder = replace(delegation.builder, outfit=outfit)
        experience = Experience(delegation.builder.store)
        return cls(settings, roles, delegation.executor, builder, boards, experience)

    def works_by_rules(self, call: TeamCall) -> bool:
        """Return whether the run's model is the offline model, so that fixed rules plan and join."""
        name = call.context.options.model_name
        return self.builder.models.create(name)._llm_type == OFFLINE_TYPE

    async def execute(
        self,
        call: TeamCall,
        name: str,
        config: SubagentConfig,
        *,
        description: str,
        prompt: str,
        resume: ResumeAnswer | None = None,
    ) -> SubagentResult:
        """Run one task of a team until it ends or asks; a task that cannot be started is a failed result."""
        task_id = f"{call.team_id}{BETWEEN}{name}"
        failed = SubagentResult(task_id, call.context.trace_id, status=SubagentStatus.FAILED)
        context = call.context
        total = total_limit(context.options, context.settings.subagents)
        started = self.executor.started(context.run_id)
        if total is not None and task_id not in started and len(started) >= total:
            return replace(failed, error=f"this run may start {total} tasks and has done so")
        try:
            task = TaskSpec(
                task_id=task_id,
                thread_id=f"{call.thread_id}{BETWEEN}{name}",
                config=config,
                description=description,
                prompt=prompt,
                model_name=self.builder.model_name(config, context.options),
                agent=self.builder.agent(config, context.options),
                context=context,
                model=lambda: self.builder.model(config, context.options),
                resume=resume,
            )
            return await self.executor.execute(task)
        except DeerFlowError as error:
            return replace(failed, error=str(error))


@dataclass(frozen=True, eq=False, slots=True)
class _TeamOutfit:
    """Adds the tools for shared findings to those of sub-agents."""

    inner: Outfit
    board_tools: Sequence[BaseTool]

    def tools(self, model_name: str, *, may_delegate: bool) -> Sequence[BaseTool]:
        return [*self.inner.tools(model_name, may_delegate=may_delegate), *self.board_tools]

    def middlewares(self, options: RunOptions, *, may_delegate: bool) -> Sequence[Middleware]:
        return self.inner.middlewares(options, may_delegate=may_delegate)
