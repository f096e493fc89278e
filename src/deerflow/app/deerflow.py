"""The open application: what the gateway, channels and embedders call."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

from deerflow.agents import StateReader
from deerflow.app.components import LiveComponents, build_components
from deerflow.app.resources import Resources, open_resources
from deerflow.app.sandbox_check import SandboxCheck
from deerflow.app.threads import Threads
from deerflow.config import LoadedSettings, Settings, SettingsSource
from deerflow.config.faults import Fault
from deerflow.domain import LEAD_AGENT, RunRecord, RunRequest, ThreadFolders, new_id
from deerflow.errors import ConflictError, InvalidInputError, NotFoundError
from deerflow.files.upload_conversion import DocumentConverter
from deerflow.lead.custom import agent_name, is_agent_name
from deerflow.models import ModelFactory, quiet_tracing
from deerflow.runtime import RunManager, StreamBridge, ThreadStates, Worker
from deerflow.runtime.answers import fit_answer, heed_message
from deerflow.runtime.home_mark import home_problem
from deerflow.runtime.housekeeping import Housekeeping
from deerflow.runtime.inputs import graph_input
from deerflow.runtime.question_timeouts import QuestionTimeouts
from deerflow.runtime.questions import listed_questions
from deerflow.runtime.task_cancel_requests import TaskCancelRequests
from deerflow.runtime.titles import with_title
from deerflow.runtime.webhooks import Webhooks

logger = logging.getLogger(__name__)


class DeerFlow:
    """The running application: created by `DeerFlow.open`, closed when its block exits."""

    def __init__(self, *, ground: Resources, rooms: LiveComponents, capacity: int | None = None) -> None:
        self._components = rooms
        self.paths = ground.paths
        self.storage = ground.storage
        self.watch = ground.watch
        self.subagents = ground.subagents
        self.custom_agents = ground.custom_agents
        self.mcp = ground.mcp
        bridge = StreamBridge(
            events=self.storage.events, runs=self.storage.runs, signals=self.storage.signals
        )
        self.state = ThreadStates(StateReader(self.storage.checkpoints))
        self.runs = self._run_manager(ground, bridge, capacity)
        self.housekeeping = Housekeeping(
            retention=self.storage.retention,
            settings=lambda: rooms.source.current().settings.runs,
            sweep=lambda: self.threads.sweep(),
        )
        self.spending = ground.spending
        self.memories = ground.memories
        self.threads = Threads(
            storage=self.storage,
            paths=self.paths,
            bridge=bridge,
            states=self.state,
            spending=self.spending,
            memories=self.memories,
            titles=lambda: self.settings.title,
        )
        self.documents = DocumentConverter(settings=lambda: self.settings.uploads)
        self.task_cancel_requests = TaskCancelRequests(
            store=self.storage.store,
            cancel=self.subagents.request_cancel,
            is_busy=lambda: self.runs.in_progress > 0,
        )
        self.asks = self._question_timeouts()
        self.webhooks = Webhooks(self.storage, self.state, lambda: self.settings.runs.webhook_allow_cidrs)
        self.sandbox_check = SandboxCheck(ground.sandboxes, self.settings.sandbox)

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
        async with open_resources(loaded) as ground, AsyncExitStack() as stack:
            rooms = LiveComponents(source, ground, await build_components(loaded, ground))
            deerflow = cls(ground=ground, rooms=rooms, capacity=capacity)
            stack.push_async_callback(deerflow._close)
            deerflow.runs.tend(take_over=takes_over)
            deerflow.runs.look(deerflow.task_cancel_requests.obey)
            if takes_over:
                rooms.log_faults()
                await deerflow._look_around(capacity)
                deerflow.housekeeping.start()
                deerflow.asks.start()
                if capacity != 0:
                    await stack.enter_async_context(ground.mcp.opening())
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

    def folders(self, user_id: str, thread_id: str) -> ThreadFolders:
        """Return the folders of a thread's files."""
        return self.paths.thread(user_id, thread_id)

    async def start_run(self, request: RunRequest) -> RunRecord:
        """Admit and start a run with the current settings."""
        if (known := await self.runs.sent_before(request)) is not None:
            return known  # even if its thread, agent or question has changed since
        await self.refresh()
        request = await self._as_agent(request)
        self._check_model(request.options.model_name)  # before anything is stored
        request = await heed_message(self.state, self.storage.threads, request)
        request = await fit_answer(self.state, self.storage.runs, request)
        await self._check_input(request)
        request = with_title(request, self.settings.title)
        run_id = new_id()
        if request.webhook is not None:
            await self.webhooks.expect(run_id, request.webhook)
        if request.deletes_thread:
            await self.threads.expect_to_go(run_id, request)
        return await self.runs.create_or_reject(request, run_id=run_id)

    def hurry(self) -> None:
        """Stop waiting for anything that can be abandoned; for a process that is shutting down."""
        self.runs.hurry()
        self.memories.learner.hurry()

    async def is_custom_agent(self, name: str, user_id: str) -> bool:
        """Return whether a user has an agent of this name."""
        name = agent_name(name)
        return is_agent_name(name) and await asyncio.to_thread(self.custom_agents.exists, user_id, name)

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
        """Return the health summary for operators."""
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

    def _run_manager(self, ground: Resources, bridge: StreamBridge, capacity: int | None) -> RunManager:
        worker = Worker(
            storage=ground.storage,
            bridge=bridge,
            paths=ground.paths,
            prepare_run=self._components.prepare_run,
            watch=ground.watch,
            questions=lambda thread_id: listed_questions(self.state, thread_id),
            states=self.state,
        )
        return RunManager(
            storage=ground.storage,
            bridge=bridge,
            worker=worker,
            owner=ground.owner,
            capacity=capacity,
            max_attempts=self.settings.runs.max_attempts,
            lease_seconds=self.settings.run_ownership.lease_seconds,
            grace_seconds=self.settings.run_ownership.grace_seconds,
            after_run=self._after_run,
        )

    def _question_timeouts(self) -> QuestionTimeouts:
        return QuestionTimeouts(
            threads=self.storage.threads,
            runs=self.storage.runs,
            states=self.state,
            checkpoints=self.storage.checkpoints,
            start=self.start_run,
            settings=lambda: self.settings.guardrails,
        )

    def _check_model(self, name: str | None) -> None:
        if name is None:
            return
        try:
            self.models.get(name)
        except NotFoundError as error:  # not a 404: the thread in the request exists
            raise InvalidInputError(str(error)) from error

    async def _check_input(self, request: RunRequest) -> None:
        """Reject a run without input on a thread without state."""
        if graph_input(request) is not None or await self.state.latest(request.thread_id) is not None:
            return
        if not await self.threads.is_busy(request.thread_id):  # an active run may leave a state
            raise InvalidInputError(
                f"input is null, and thread {request.thread_id} has no state to go on from: "
                "send input.messages"
            )

    async def _as_agent(self, request: RunRequest) -> RunRequest:
        """Return the request with the options of the custom agent it names, by option or as the assistant."""
        name, user = request.options.agent_name, request.user_id
        if request.assistant_id != LEAD_AGENT:
            if name is None and await self.is_custom_agent(request.assistant_id, user):
                name = agent_name(request.assistant_id)
            if name is None:
                await self.storage.assistants.get(request.assistant_id, user)
        if name is None or request.options.is_bootstrap:  # an agent being created has no options yet
            return request
        agent = await asyncio.to_thread(self.custom_agents.get, user, name)
        return replace(request, options=agent.options(request.options))

    async def _after_run(self, run: RunRecord) -> None:
        await self.housekeeping.tidy_after(run)
        await self.threads.let_go(run)

    async def _look_around(self, capacity: int | None) -> None:
        """Log what is wrong with the resources that processes on one database share."""
        jobs = self.storage.jobs
        if jobs is None:
            return  # a process with its own database shares nothing
        if capacity == 0 and not await jobs.workers():
            logger.warning("nobody executes runs yet: they wait until a `deerflow worker` is started")
        problem = await home_problem(self.storage.store, self.paths, remember=True)
        if problem is not None:
            logger.warning("%s", problem)

    async def _close(self) -> None:
        await self.asks.aclose()
        await self.documents.aclose()
        await self.housekeeping.aclose()
        await self.runs.aclose()
        await self.memories.aclose(self.settings.memory.shutdown_flush_timeout_seconds)
        await self._components.aclose()


def _fault_out(fault: Fault, redact: Callable[[str], str]) -> dict[str, Any]:
    return {
        "key": fault.key,
        "problem": redact(fault.text),  # a tool's error text may contain its key
        "fix": fault.fix,
        "is_security": fault.is_security,
        "is_broken": fault.is_broken,
    }
