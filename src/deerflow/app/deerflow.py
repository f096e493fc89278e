"""The open application: what the gateway, channels and embedders call."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from deerflow.agents import StateReader
from deerflow.app.components import LiveComponents, Resources, SandboxCheck, build_components, open_resources
from deerflow.config import LoadedSettings, Settings, SettingsSource
from deerflow.config.effect import Fault
from deerflow.domain import RunRecord, RunRequest, ThreadFolders
from deerflow.errors import ConflictError
from deerflow.files.home_marker import home_problem
from deerflow.files.upload_conversion import DocumentConverter, markdown_of
from deerflow.lead.skill_editors import SkillEditors
from deerflow.models import ModelFactory, quiet_tracing
from deerflow.periodic import Periodic
from deerflow.runtime import RunManager, StreamBridge, ThreadStates, Worker
from deerflow.runtime.event_log import drop_expired_events
from deerflow.runtime.interrupts import QuestionTimeouts
from deerflow.runtime.run_control import TaskCancelRequests
from deerflow.runtime.threads import Threads
from deerflow.runtime.webhooks import Webhooks
from deerflow.skills import Skill, Skills
from deerflow.skills.editor import SkillEditor
from deerflow.skills.library import SkillLibrary, enabling
from deerflow.storage import OwnerLock
from deerflow.web.service import WebService

logger = logging.getLogger(__name__)

_EXPIRY_SECONDS = 3600
_REINDEX_SECONDS = 60.0
"""How often texts without a vector of the current embedding model are looked for."""


class DeerFlow:
    """The running application: created by `DeerFlow.open`, closed when its block exits."""

    def __init__(
        self, *, resources: Resources, components: LiveComponents, capacity: int | None = None
    ) -> None:
        self._components = components
        self.paths = resources.paths
        self.storage = resources.storage
        self.watch = resources.watch
        self.subagents = resources.subagents
        self.custom_agents = resources.custom_agents
        self.mcp = resources.mcp
        self.side_usage = resources.side_usage
        self.memories = resources.memories
        self.skill_secrets = resources.skill_secrets
        self.state = ThreadStates(StateReader(self.storage.checkpoints))
        bridge = StreamBridge(
            events=self.storage.events, runs=self.storage.runs, signals=self.storage.signals
        )
        self.threads = Threads(
            storage=self.storage,
            paths=self.paths,
            bridge=bridge,
            states=self.state,
            side_usage=self.side_usage,
            memories=self.memories,
            titles=lambda: self.settings.title,
        )
        self.documents = DocumentConverter(settings=lambda: self.settings.uploads)
        self.web = WebService(env=lambda: self.loaded.env, convert_document=self._convert_document)
        self.webhooks = Webhooks(self.storage, self.state, lambda: self.settings.runs.webhook_allow_cidrs)
        self.runs = self._run_manager(resources.owner, bridge, capacity)
        self._expiry = Periodic(self._delete_expired, _EXPIRY_SECONDS, name="deleting expired data")
        self._reindexing = Periodic(resources.index.reindex, _REINDEX_SECONDS, name="embedding texts anew")
        self.task_cancel_requests = TaskCancelRequests(
            store=self.storage.store,
            cancel=self.subagents.request_cancel,
            is_busy=lambda: self.runs.in_progress > 0,
        )
        self.question_timeouts = QuestionTimeouts(
            storage=self.storage,
            states=self.state,
            start=self.start_run,
            settings=lambda: self.settings.guardrails,
        )
        self.sandbox_check = SandboxCheck(resources.sandboxes, self.settings.sandbox)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        source: SettingsSource | None = None,
        *,
        takes_over: bool = False,
        capacity: int | None = None,
    ) -> AsyncIterator["DeerFlow"]:
        """Open all resources and components, and close them when the block exits.

        Args:
            source: where settings come from; found as the command line finds them when absent.
            takes_over: resume runs whose process died; for servers, not for one-off jobs.
            capacity: how many runs to execute at once; None for any number, 0 to leave all to others.
        """
        quiet_tracing()
        source = source or SettingsSource()
        loaded = source.current()
        async with open_resources(loaded) as resources, AsyncExitStack() as stack:
            components = LiveComponents(source, resources, await build_components(loaded, resources))
            deerflow = cls(resources=resources, components=components, capacity=capacity)
            stack.push_async_callback(deerflow._close)
            deerflow.runs.start_polling(take_over=takes_over)
            cancel_tasks = deerflow.task_cancel_requests.apply
            deerflow.runs.every_second(cancel_tasks, name="cancelling tasks")
            if takes_over:
                components.log_faults()
                await deerflow._check_shared_resources(capacity)
                deerflow._expiry.start()
                deerflow._reindexing.start()
                deerflow.question_timeouts.start()
                if capacity != 0:
                    await stack.enter_async_context(resources.mcp.opening())
            await stack.enter_async_context(deerflow.sandbox_check.announcing())
            yield deerflow

    @property
    def settings(self) -> Settings:
        """The settings as of the last run that started."""
        return self.loaded.settings

    @property
    def loaded(self) -> LoadedSettings:
        """The settings with their source and problems."""
        return self._components.now.loaded

    @property
    def models(self) -> ModelFactory:
        """The models as of the last run that started."""
        return self._components.now.models

    @property
    def skills(self) -> Skills:
        """The skills as of the last run that started."""
        return self._components.now.skills

    @property
    def skill_editors(self) -> SkillEditors:
        """Makes the editors of users' skills, as of the last run that started."""
        return self._components.now.skill_editors

    def skill_editor(self, user_id: str) -> SkillEditor:
        """Return what a user changes custom skills with."""
        return self.skill_editors.of(user_id)

    def skill_library(self, user_id: str) -> SkillLibrary:
        """Return what can be done with a user's skills."""
        now = self._components.now
        return SkillLibrary(now.skills, now.skill_editors.of(user_id), now.catalogues, user=user_id)

    async def enable_skill(self, name: str, user_id: str, *, is_enabled: bool) -> Skill:
        """Switch a skill on or off for runs that start afterwards."""
        skill = await asyncio.to_thread(self.skill_library(user_id).find, name)
        await self.edit_extensions(enabling(name, is_enabled=is_enabled))
        await asyncio.to_thread(self.skill_library(user_id).check_state, skill, is_enabled=is_enabled)
        return skill

    def folders(self, user_id: str, thread_id: str) -> ThreadFolders:
        return self.paths.thread(user_id, thread_id)

    async def start_run(self, request: RunRequest) -> RunRecord:
        """Admit and start a run with the current settings."""
        await self.refresh()
        return await self.runs.start(request)

    def skip_grace(self) -> None:
        """Stop waiting for anything that can be abandoned; for a process that is shutting down."""
        self.runs.skip_grace()
        self.memories.learner.cancel_all()

    async def is_custom_agent(self, name: str, user_id: str) -> bool:
        return await self._components.is_custom_agent(name, user_id)

    async def refresh(self) -> None:
        """Apply an edit of the settings, if there is one; runs in progress keep theirs."""
        await self._components.refresh()

    async def edit_extensions(self, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        """Rewrite `extensions_config.json` with what `change` returns; runs that start afterwards use it."""
        await asyncio.to_thread(self._components.source.edit_extensions, change)
        await self.refresh()
        if self._components.problem is not None:
            raise ConflictError(f"the edit is written but not in force yet: {self._components.problem}")

    @property
    def faults(self) -> list[Fault]:
        """The configured items that do not work, as far as known without a network request."""
        down = (status for status in self.mcp.statuses if status.problem is not None)
        servers = [
            Fault(f"mcpServers.{status.name}", status.problem or "", "runs go on without it")
            for status in down
        ]
        return [*self._components.now.faults, *servers]

    def health(self) -> dict[str, Any]:
        source = self._components.source
        return {
            "models": list(self.models.names),
            "sandbox": self.sandbox_check.health(),
            "config": {
                "path": str(self.loaded.source_path) if self.loaded.source_path else None,
                "problem": self._components.problem,
                "problems": [str(problem) for problem in self.loaded.problems],
                "restart_needed": list(source.restart_needed),
                "faults": [_fault_out(fault, self.watch.redact) for fault in self.faults],
            },
        }

    def _run_manager(self, owner: OwnerLock, bridge: StreamBridge, capacity: int | None) -> RunManager:
        worker = Worker(
            storage=self.storage,
            bridge=bridge,
            paths=self.paths,
            preparer=self._components,
            states=self.state,
            watch=self.watch,
            web=self.web,
        )
        return RunManager(
            storage=self.storage,
            bridge=bridge,
            worker=worker,
            preparer=self._components,
            states=self.state,
            threads=self.threads,
            webhooks=self.webhooks,
            owner=owner,
            capacity=capacity,
            max_attempts=self.settings.runs.max_attempts,
            lease_seconds=self.settings.run_ownership.lease_seconds,
            grace_seconds=self.settings.run_ownership.grace_seconds,
            after_run=self._after_run,
        )

    async def _after_run(self, run: RunRecord) -> None:
        keep = self._components.source.current().settings.runs.checkpoints_kept
        if keep is not None:
            await self.storage.retention.drop_checkpoints(run.thread_id, keep=keep)
        await self.threads.delete_temporary(run)

    async def _convert_document(self, content: bytes, kind: str) -> str:
        return await markdown_of(content, kind, self.settings.uploads.pdf_converter)

    async def _delete_expired(self) -> None:
        days = self._components.source.current().settings.runs.retention_days
        await drop_expired_events(self.storage.retention, days)
        await self.threads.delete_left_behind()

    async def _check_shared_resources(self, capacity: int | None) -> None:
        """Log what is wrong with the resources that processes on one database share."""
        jobs = self.storage.jobs
        if jobs is None:
            return  # a process with its own database shares nothing
        if capacity == 0 and not await jobs.workers():
            logger.warning("no process executes runs yet: they wait until a `deerflow worker` is started")
        problem = await home_problem(self.storage.store, self.paths, remember=True)
        if problem is not None:
            logger.warning("%s", problem)

    async def _close(self) -> None:
        await self.question_timeouts.aclose()
        await self.documents.aclose()
        await self._expiry.aclose()
        await self._reindexing.aclose()
        await self.runs.aclose()
        await self.web.aclose()
        await self.memories.learner.aclose(self.settings.memory.shutdown_flush_timeout_seconds)
        await self._components.aclose()


def _fault_out(fault: Fault, redact: Callable[[str], str]) -> dict[str, Any]:
    return {
        "key": fault.key,
        "problem": redact(fault.text),  # a tool's error text may contain its key
        "fix": fault.fix,
        "is_security": fault.is_security,
        "is_broken": fault.is_broken,
    }
