"""DeerFlow, put together: the one file that chooses concrete classes and owns their lifetimes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from deerflow.agents import StateReader
from deerflow.config import LoadedSettings, Paths, Settings, SettingsSource
from deerflow.domain import LEAD_AGENT, RunRecord, RunRequest, RunStatus, Thread, ThreadFolders, new_id
from deerflow.errors import ConflictError
from deerflow.lead import LeadAgents, LeadRooms
from deerflow.lead.custom import CustomAgents, is_agent_name
from deerflow.models import ModelFactory, discover, quiet_tracing
from deerflow.observability import learn_secrets, secrets_of
from deerflow.observability.opening import open_watch
from deerflow.observability.watch import Watch
from deerflow.runtime import Crew, RunManager, StreamBridge, ThreadStates, Worker
from deerflow.runtime.answers import fit_answer
from deerflow.runtime.asking import AskTender
from deerflow.runtime.copying import copy_thread
from deerflow.runtime.documents import DocumentConverter
from deerflow.runtime.feedback import forget_feedback
from deerflow.runtime.home_mark import home_problem
from deerflow.runtime.housekeeping import Housekeeping
from deerflow.runtime.spending import SideSpending
from deerflow.runtime.task_wishes import TaskWishes
from deerflow.runtime.webhooks import Webhooks
from deerflow.sandbox import (
    SandboxProvider,
    SelfTest,
    choose_users_root,
    create_sandbox_provider,
    remove_tree,
)
from deerflow.sandbox.tiers import tier_of
from deerflow.skills import Skills
from deerflow.storage import OwnerLock, Storage, open_storage
from deerflow.subagents import SubagentExecutor
from deerflow.tools.acp import acp_tools

logger = logging.getLogger(__name__)

_LINGER_SECONDS = 5
"""How long a thread that goes with its run can still be read."""


@dataclass(frozen=True, eq=False, slots=True)
class Rooms:
    """What follows the settings: made anew when they change, used by runs that start after that."""

    loaded: LoadedSettings
    models: ModelFactory
    agents: LeadAgents


class DeerFlow:
    """Everything that runs, open: made by `DeerFlow.open`, closed with its block."""

    def __init__(
        self,
        *,
        source: SettingsSource,
        paths: Paths,
        storage: Storage,
        sandboxes: SandboxProvider,
        executor: SubagentExecutor,
        owner: OwnerLock,
        rooms: Rooms,
        watch: Watch,
        capacity: int | None = None,
    ) -> None:
        self._source = source
        self._sandboxes = sandboxes
        self._executor = executor
        self._rooms = rooms
        self._tier = tier_of(rooms.loaded.settings.sandbox)
        self._outdated: list[Rooms] = []
        self._refreshing = asyncio.Lock()
        self._self_test: SelfTest | None = None
        self.paths = paths
        self.storage = storage
        self.watch = watch
        self._bridge = StreamBridge(events=storage.events, runs=storage.runs, signals=storage.signals)
        worker = Worker(storage=storage, bridge=self._bridge, paths=paths, crew=self._crew, watch=watch)
        self.runs = RunManager(
            storage=storage,
            bridge=self._bridge,
            worker=worker,
            owner=owner,
            capacity=capacity,
            max_attempts=rooms.loaded.settings.runs.max_attempts,
            lease_seconds=rooms.loaded.settings.run_ownership.lease_seconds,
            grace_seconds=rooms.loaded.settings.run_ownership.grace_seconds,
            after_run=self._after_run,
        )
        self.housekeeping = Housekeeping(
            retention=storage.retention, settings=lambda: self._source.current().settings.runs
        )
        self.custom_agents = CustomAgents(paths)
        self.state = ThreadStates(StateReader(storage.checkpoints))
        self.spending = SideSpending(storage.store)
        self.documents = DocumentConverter(settings=lambda: self.settings.uploads)
        self.task_wishes = TaskWishes(
            store=storage.store,
            cancel=executor.request_cancel,
            is_busy=lambda: self.runs.in_progress > 0,
        )
        self.asks = self._ask_tender()
        self.webhooks = Webhooks(storage, self.state, lambda: self.settings.runs.webhook_allow_cidrs)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        source: SettingsSource | None = None,
        *,
        takes_over: bool = False,
        capacity: int | None = None,
    ) -> AsyncIterator["DeerFlow"]:
        """Open everything, and close it with the block.

        Args:
            source: where settings come from; found as the command line finds them when absent.
            takes_over: go on with runs whose process died; for servers, not for one-off jobs.
            capacity: how many runs are driven at once; None for any number, 0 to leave all to others.
        """
        quiet_tracing()
        source = source or SettingsSource()
        loaded = source.current()
        async with AsyncExitStack() as stack:
            paths = loaded.paths
            watch = await stack.enter_async_context(open_watch(loaded))
            paths = replace(paths, users_root=choose_users_root(paths, loaded.settings.sandbox))
            lease_seconds = loaded.settings.run_ownership.lease_seconds
            opening = open_storage(loaded.settings.database, paths, lease_seconds=lease_seconds)
            storage = await stack.enter_async_context(opening)
            owner = OwnerLock(paths.data / "owners")
            stack.callback(owner.close)
            owner.clean_up()
            sandboxes = create_sandbox_provider(loaded.settings.sandbox, skills_root=loaded.skills_root)
            stack.push_async_callback(sandboxes.aclose)
            executor = SubagentExecutor(max_running=loaded.settings.subagents.max_running)
            rooms = await _build_rooms(loaded, storage, executor, CustomAgents(paths))
            deerflow = cls(
                source=source,
                paths=paths,
                storage=storage,
                sandboxes=sandboxes,
                executor=executor,
                owner=owner,
                rooms=rooms,
                watch=watch,
                capacity=capacity,
            )
            stack.push_async_callback(deerflow._close)
            deerflow.runs.tend(take_over=takes_over)
            deerflow.runs.look(deerflow.task_wishes.obey)
            if takes_over:
                await deerflow._look_around(capacity)
                deerflow.housekeeping.start()
                deerflow.asks.start()
            testing = asyncio.create_task(deerflow._test_sandbox())
            stack.callback(testing.cancel)
            yield deerflow

    @property
    def settings(self) -> Settings:
        """The settings as of the last run that started."""
        return self._rooms.loaded.settings

    @property
    def loaded(self) -> LoadedSettings:
        """The settings with where they came from and what is wrong with them."""
        return self._rooms.loaded

    @property
    def models(self) -> ModelFactory:
        return self._rooms.models

    @property
    def subagents(self) -> SubagentExecutor:
        return self._executor

    def folders(self, user_id: str, thread_id: str) -> ThreadFolders:
        """Return where a thread's files are."""
        return self.paths.thread(user_id, thread_id)

    async def start_run(self, request: RunRequest) -> RunRecord:
        """Admit and start a run, with the settings as they are now."""
        await self.refresh()
        request = await self._as_agent(request)
        if request.options.model_name is not None:
            self.models.get(request.options.model_name)  # unknown: refused before anything is stored
        run = await self.runs.create_or_reject(await fit_answer(self.state, request))
        await self.webhooks.expect(run)
        return run

    async def is_custom_agent(self, name: str, user_id: str) -> bool:
        """Tell whether a user has an agent of this name."""
        return is_agent_name(name) and await asyncio.to_thread(self.custom_agents.exists, user_id, name)

    async def _as_agent(self, request: RunRequest) -> RunRequest:
        """Return the request with what the user's own agent says, named as such or as the assistant."""
        name, user = request.options.agent_name, request.user_id
        if request.assistant_id != LEAD_AGENT:
            if name is None and await self.is_custom_agent(request.assistant_id, user):
                name = request.assistant_id
            if name is None:
                await self.storage.assistants.get(request.assistant_id, user)
        if name is None or request.options.is_bootstrap:  # one that is only being made has nothing to say yet
            return request
        agent = await asyncio.to_thread(self.custom_agents.get, user, name)
        return replace(request, options=agent.options(request.options))

    async def refresh(self) -> None:
        """Take up an edit of the settings, if there is one; runs in progress keep theirs."""
        if self._source.current() is self._rooms.loaded:
            return
        async with self._refreshing:  # whoever comes second finds the work done
            loaded = self._source.current()
            if loaded is not self._rooms.loaded:
                secrets = list(secrets_of(loaded))
                learn_secrets(secrets)
                self.watch.redact.learn(secrets)
                rooms = await _build_rooms(loaded, self.storage, self._executor, self.custom_agents)
                self._outdated.append(self._rooms)
                self._rooms = rooms

    async def update_state(
        self,
        thread_id: str,
        values: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
        *,
        checkpoint_id: str | None = None,
        as_node: str | None = None,
    ) -> None:
        """Change a thread's state by hand; a new title shows in the list of threads too."""
        await self.state.update(thread_id, values, checkpoint_id=checkpoint_id, as_node=as_node)
        parts = [values or {}] if isinstance(values, Mapping | None) else values
        titles = [part["title"] for part in parts if part.get("title")]
        await self.storage.threads.update(thread_id, title=titles[-1] if titles else None)

    async def is_busy(self, thread_id: str) -> bool:
        """Tell whether a run of the thread is under way or waits for its turn."""
        for status in (RunStatus.RUNNING, RunStatus.PENDING):
            if await self.runs.of_thread(thread_id, status=status, limit=1):
                return True
        return False

    async def copy_thread(self, thread: Thread) -> Thread:
        """Return a new thread with the same conversation and files."""
        folders = (self.folders(thread.user_id, name) for name in (thread.id, new_id()))
        return await copy_thread(self.storage, thread, *folders)

    async def delete_thread(self, thread_id: str, user_id: str) -> None:
        """Delete a thread with its runs, checkpoints and files."""
        if await self.is_busy(thread_id):
            raise ConflictError(f"thread {thread_id} has a run in flight; cancel it first")
        await self.storage.threads.delete(thread_id)
        await forget_feedback(self.storage.store, thread_id)
        await self.spending.forget(thread_id)
        self._bridge.forget(thread_id)
        await asyncio.to_thread(remove_tree, self.folders(user_id, thread_id).root)

    async def edit_extensions(self, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        """Write what `change` makes of `extensions_config.json` into it; runs that start then use it."""
        await asyncio.to_thread(self._source.edit_extensions, change)
        await self.refresh()

    def health(self) -> dict[str, Any]:
        """Return what an operator should know at a glance."""
        tested = self._self_test
        return {
            "models": list(self.models.names),
            "sandbox": {
                "tier": self._tier,
                "ready": None if tested is None else tested.ok,
                "problem": None if tested is None or tested.ok else f"{tested.reason} {tested.fix}".strip(),
            },
            "config": {
                "path": str(self.loaded.source_path) if self.loaded.source_path else None,
                "problem": self._source.problem,
                "problems": [str(problem) for problem in self.loaded.problems],
                "restart_needed": list(self._source.restart_needed),
            },
        }

    async def test_sandbox(self) -> SelfTest:
        """Return whether commands can run, trying it once."""
        if self._self_test is None:
            self._self_test = await self._sandboxes.self_test()
        return self._self_test

    async def _crew(self, run: RunRecord) -> Crew:
        await self.refresh()  # the run may have been admitted by another process
        rooms = self._rooms
        if rooms.loaded.settings.acp_agents:  # there before the sandbox is made, which sees it read-only
            self.folders(run.user_id, run.thread_id).acp_workspace.mkdir(parents=True, exist_ok=True)
        options = run.request.options
        name = None if options.is_bootstrap else options.agent_name
        own = self.custom_agents.get(run.user_id, name) if name else None
        agent = rooms.agents.get(options, own)
        model_name = options.model_name or rooms.models.default_name
        return Crew(rooms.loaded.settings, agent, self._sandboxes, self._executor.finish, model_name)

    def _ask_tender(self) -> AskTender:
        return AskTender(
            threads=self.storage.threads,
            runs=self.storage.runs,
            states=self.state,
            checkpoints=self.storage.checkpoints,
            start=self.start_run,
            settings=lambda: self.settings.guardrails,
        )

    async def _after_run(self, run: RunRecord) -> None:
        await self.housekeeping.tidy_after(run)
        if run.request.deletes_thread:
            await asyncio.sleep(_LINGER_SECONDS)
            await self.delete_thread(run.thread_id, run.user_id)

    async def _look_around(self, capacity: int | None) -> None:
        """Say what is wrong with what processes on one database have to share."""
        jobs = self.storage.jobs
        if jobs is None:
            return  # whoever has a database for itself shares nothing
        if capacity == 0 and not await jobs.workers():
            logger.warning("nobody executes runs yet: they wait until a `deerflow worker` is started")
        problem = await home_problem(self.storage.store, self.paths, remember=True)
        if problem is not None:
            logger.warning("%s", problem)

    async def _test_sandbox(self) -> None:
        tested = await self.test_sandbox()
        if not tested.ok:
            logger.warning("sandbox %s cannot run commands: %s", self._tier, tested.reason)

    async def _close(self) -> None:
        await self.asks.aclose()
        await self.documents.aclose()
        await self.housekeeping.aclose()
        await self.runs.aclose()
        for rooms in (*self._outdated, self._rooms):
            await rooms.models.aclose()


async def _build_rooms(
    loaded: LoadedSettings, storage: Storage, executor: SubagentExecutor, custom_agents: CustomAgents
) -> Rooms:
    settings = loaded.settings
    entries = settings.models or (await discover(loaded.env)).models
    models = ModelFactory(entries, env=loaded.env)
    rooms = LeadRooms(
        settings=settings,
        models=models,
        executor=executor,
        skills=Skills(
            loaded.skills_root,
            container_path=settings.skills.container_path,
            disabled=_disabled_skills(loaded),
        ),
        checkpointer=storage.checkpoints,
        store=storage.store,
        agent_folders=[loaded.paths.home / "agents", loaded.project_root / "agents"],
        custom_agents=custom_agents,
        extra_tools=acp_tools(settings.acp_agents, loaded.env, loaded.extensions.mcp_servers),
    )
    return Rooms(loaded, models, LeadAgents(rooms))


def _disabled_skills(loaded: LoadedSettings) -> list[str]:
    return [name for name, skill in loaded.extensions.skills.items() if not skill.enabled]
