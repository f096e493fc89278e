"""Components built from the settings: rebuilt when they change, used by runs that start afterwards.

Resources are independent of settings edits: opened once, closed in reverse order.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from deerflow.addresses import ALLOW_CIDRS, parse_network
from deerflow.agents.plugin_middlewares import load_middlewares
from deerflow.app.configured import faults_of, summary
from deerflow.app.skill_gate import SkillGate
from deerflow.config import LoadedSettings, ModelSettings, Paths, SandboxSettings, Settings, SettingsSource
from deerflow.config.effect import Fault
from deerflow.domain import LEAD_AGENT, RunRecord, RunRequest, ThreadFolders
from deerflow.errors import ConfigError, InvalidInputError, NotFoundError
from deerflow.lead import LeadAgents, LeadDependencies
from deerflow.lead.custom_agents import CustomAgents, agent_name, is_agent_name
from deerflow.lead.skill_editors import SkillEditors
from deerflow.mcp import McpServers, ToolPins
from deerflow.mcp.base import ServerEnvironment
from deerflow.memory import MemoryService
from deerflow.models import ModelFactory, discover
from deerflow.models.providers import memory_model
from deerflow.observability import learn_secrets, secrets_of
from deerflow.observability.loop_delay import measuring_loop_delay
from deerflow.observability.opening import open_watch
from deerflow.observability.watch import Watch
from deerflow.retrieval import Index, create_embeddings, default_embeddings
from deerflow.runtime import RunSetup
from deerflow.runtime.usage import SideUsage, prices_of
from deerflow.sandbox import (
    PathMapping,
    SandboxProvider,
    SelfTest,
    checked_container_path,
    choose_users_root,
    create_sandbox_provider,
    tier_of,
)
from deerflow.skills import SkillFolders, Skills, skill_folders, skills_of
from deerflow.skills.catalogues import Catalogues, catalogues_of
from deerflow.skills.secrets import SkillSecrets
from deerflow.storage import OwnerLock, Storage, open_storage
from deerflow.subagents import SubagentExecutor
from deerflow.subagents.python_agents import load_agents
from deerflow.tools.acp import acp_tools
from deerflow.tools.mcp import McpToolbox

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False, slots=True)
class Resources:
    """The resources that outlive an edit of the settings, one field each."""

    paths: Paths
    watch: Watch
    storage: Storage
    owner: OwnerLock
    sandboxes: SandboxProvider
    skill_mounts: "SkillFolderMounts"
    subagents: SubagentExecutor
    custom_agents: CustomAgents
    mcp: McpServers
    index: Index
    memories: MemoryService
    skill_secrets: SkillSecrets
    skill_gate: SkillGate
    side_usage: SideUsage


@asynccontextmanager
async def open_resources(loaded: LoadedSettings) -> AsyncIterator[Resources]:
    """Open the resources, and close them when the block exits."""
    settings = loaded.settings
    async with AsyncExitStack() as stack:
        watch = await stack.enter_async_context(open_watch(loaded))
        stack.enter_context(measuring_loop_delay(watch.meters))
        paths = replace(loaded.paths, users_root=choose_users_root(loaded.paths, settings.sandbox))
        lease_seconds = settings.run_ownership.lease_seconds
        opening = open_storage(settings.database, paths, lease_seconds=lease_seconds)
        storage = await stack.enter_async_context(opening)
        owner = OwnerLock(paths.data / "owners")
        stack.callback(owner.close)
        owner.clean_up()
        skill_mounts = SkillFolderMounts(skill_folders(loaded, paths))
        sandboxes = create_sandbox_provider(settings.sandbox, skills=skill_mounts)
        stack.push_async_callback(sandboxes.aclose)
        environment = ServerEnvironment(env=loaded.env, folder=loaded.project_root)
        mcp = McpServers(environment, redact=watch.redact, pins=ToolPins(storage.store))
        stack.push_async_callback(mcp.aclose)
        embeddings, usual = create_embeddings(settings.embeddings), default_embeddings()
        if embeddings is not None:
            stack.callback(embeddings.close)
        index = Index(storage.passages, embeddings, previous=[usual] if usual else [])
        gate = SkillGate()
        stack.push_async_callback(gate.aclose)
        yield Resources(
            paths=paths,
            watch=watch,
            storage=storage,
            owner=owner,
            sandboxes=sandboxes,
            skill_mounts=skill_mounts,
            subagents=SubagentExecutor(max_running=settings.subagents.max_running),
            custom_agents=CustomAgents(paths),
            mcp=mcp,
            index=index,
            memories=MemoryService(storage.store, index, redact=watch.redact, settings=settings.memory),
            skill_secrets=SkillSecrets(paths.home),
            skill_gate=gate,
            side_usage=SideUsage(storage.store),
        )


@dataclass(frozen=True, eq=False, slots=True)
class Components:
    """The components built from one value of the settings."""

    loaded: LoadedSettings
    models: ModelFactory
    skills: Skills
    skill_editors: SkillEditors
    catalogues: Catalogues
    agents: LeadAgents
    memory_models: ModelFactory | None = None
    """Creates the model used only by memory, if one is configured."""
    faults: tuple[Fault, ...] = ()
    """Configured items that do not work."""

    @property
    def factories(self) -> list[ModelFactory]:
        """The model factories, which hold connections."""
        return [each for each in (self.models, self.memory_models) if each is not None]


async def build_components(loaded: LoadedSettings, resources: Resources) -> Components:
    """Build the components for these settings; a new capability joins `LeadDependencies` here."""
    settings = loaded.settings
    models = ModelFactory(settings.models or await _found_models(loaded), env=loaded.env)
    memory_models = _memory_models(loaded)
    skills = skills_of(loaded, resources.paths)
    editors = SkillEditors(loaded, resources.paths, models, skills)
    dependencies = LeadDependencies(
        settings=settings,
        models=models,
        executor=resources.subagents,
        skills=skills,
        skill_editors=editors,
        compare_skill=partial(resources.skill_gate.start, editors),
        checkpointer=resources.storage.checkpoints,
        store=resources.storage.store,
        agent_folders=[loaded.paths.home / "agents", loaded.project_root / "agents"],
        custom_agents=resources.custom_agents,
        memories=resources.memories,
        memory_models=memory_models,
        count_side_call=partial(resources.side_usage.add, prices=prices_of(settings.models)),
        middlewares=(await asyncio.to_thread(load_middlewares, loaded.extensions.middlewares))[0],
        subagent_types=(await asyncio.to_thread(load_agents, loaded.extensions.agents))[0],
        extra_tools=acp_tools(settings.acp_agents, loaded.env, loaded.extensions.mcp_servers),
        skill_secrets=resources.skill_secrets,
        has_shell=lambda: (test := resources.sandboxes.last_test) is None or test.ok,
    )
    networks = tuple(parse_network(text, setting=ALLOW_CIDRS) for text in settings.runs.webhook_allow_cidrs)
    # last: rejected settings must change nothing
    resources.skill_mounts.use(skills.folders)
    resources.mcp.use(loaded.extensions.mcp_servers, networks=networks, approval=settings.mcp.tool_approval)
    faults = tuple(await asyncio.to_thread(faults_of, loaded, models))  # it imports configured tools
    return Components(
        loaded=loaded,
        models=models,
        skills=skills,
        skill_editors=editors,
        catalogues=catalogues_of(loaded),
        agents=LeadAgents(dependencies),
        memory_models=memory_models,
        faults=faults,
    )


async def _found_models(loaded: LoadedSettings) -> tuple[ModelSettings, ...]:
    found = await discover(loaded.env)
    for key in found.unusable:
        logger.warning("%s", key.note)
    return found.models


def _memory_models(loaded: LoadedSettings) -> ModelFactory | None:
    own = loaded.settings.memory.backend_config.model
    if own is None:
        return None
    entry = memory_model(own, name="memory", key="memory.backend_config.model")
    return ModelFactory([entry], env=loaded.env)


class SkillFolderMounts:
    """The folders of skills that sandboxes see: those of the current settings, of the thread's user.

    A sandbox sees whole folders, also the skills in them that are disabled: disabling takes a skill out of
    prompts and searches, it is no secret.
    """

    def __init__(self, folders: SkillFolders) -> None:
        self.use(folders)

    def use(self, folders: SkillFolders) -> None:
        """Show these folders to sandboxes from now on; raise `ConfigError` for an unsafe path."""
        path = folders.container_path
        checked_container_path(path, key=f"skills.container_path: {path}")
        self._folders = folders

    def __call__(self, thread: ThreadFolders) -> tuple[PathMapping, ...]:
        user = thread.root.parents[1].name  # {user}/threads/{thread}
        return tuple(
            PathMapping(source.path, source.folder, read_only=True)
            for source in self._folders.of(user)
            if not source.is_link and source.folder.is_dir()
        )


class LiveComponents:
    """The components of the current settings; earlier ones are kept for the runs that use them."""

    def __init__(self, source: SettingsSource, resources: Resources, first: Components) -> None:
        self.source = source
        self._resources = resources
        self._current = first
        self._mcp = McpToolbox(resources.mcp)
        self._outdated: list[ModelFactory] = []
        self._refused: LoadedSettings | None = None
        self._problem: str | None = None
        self._refreshing = asyncio.Lock()

    @property
    def now(self) -> Components:
        return self._current

    @property
    def problem(self) -> str | None:
        """What is wrong with the latest edit of the settings; None when it is in force."""
        return self.source.problem or self._problem

    async def refresh(self) -> None:
        """Apply an edit of the settings, if there is one; runs in progress keep theirs."""
        if self._is_known(self.source.current()):
            return
        async with self._refreshing:  # a second caller finds it done
            loaded = self.source.current()
            if not self._is_known(loaded):
                await self._apply(loaded)

    def _is_known(self, loaded: LoadedSettings) -> bool:
        return loaded is self._current.loaded or loaded is self._refused

    async def _apply(self, loaded: LoadedSettings) -> None:
        secrets = list(secrets_of(loaded))
        learn_secrets(secrets)
        self._resources.watch.redact.learn(secrets)
        try:
            components = await build_components(loaded, self._resources)
        except ConfigError as error:
            self._refused, self._problem = loaded, f"the last good settings stay in force: {error}"
            logger.error("settings were not applied; %s", self._problem)
            return
        # Runs in progress may still call their models; their agents are freed with the last of these runs.
        self._outdated += self._current.factories
        self._current, self._refused, self._problem = components, None, None
        self.log_faults()

    def log_faults(self) -> None:
        """Log the configured items that do not work, in one line."""
        if text := summary(self._current.faults):
            logger.warning("%s", text)

    @property
    def settings(self) -> Settings:
        return self._current.loaded.settings

    async def is_custom_agent(self, name: str, user_id: str) -> bool:
        name = agent_name(name)
        exists = self._resources.custom_agents.exists
        return is_agent_name(name) and await asyncio.to_thread(exists, user_id, name)

    async def resolve(self, request: RunRequest) -> RunRequest:
        """Return a request with the options of the custom agent it names, by option or as the assistant."""
        name, user = request.options.agent_name, request.user_id
        if request.assistant_id != LEAD_AGENT:
            if name is None and await self.is_custom_agent(request.assistant_id, user):
                name = agent_name(request.assistant_id)
            if name is None:
                await self._resources.storage.assistants.get(request.assistant_id, user)
        if name is not None and not request.options.is_bootstrap:  # else it is created, without options yet
            agent = await asyncio.to_thread(self._resources.custom_agents.get, user, name)
            request = replace(request, options=agent.options(request.options))
        if request.options.model_name is not None:
            try:
                self._current.models.get(request.options.model_name)
            except NotFoundError as error:  # not a 404: the thread in the request exists
                raise InvalidInputError(str(error)) from error
        return request

    async def prepare(self, run: RunRecord) -> RunSetup:
        """Return the setup of a run, from the current settings."""
        await self.refresh()  # the run may have been admitted by another process
        components, resources, options = self._current, self._resources, run.request.options
        if components.loaded.settings.acp_agents:  # before the sandbox is created: it mounts this read-only
            folders = resources.paths.thread(run.user_id, run.thread_id)
            folders.acp_workspace.mkdir(parents=True, exist_ok=True)
        name = None if options.is_bootstrap else options.agent_name
        custom = resources.custom_agents.get(run.user_id, name) if name else None
        agents = components.agents
        if resources.mcp:
            agents = agents.with_mcp_tools(await self._mcp.tools())
        model_name = options.model_name or components.models.default_name
        await components.models.load(model_name)
        # A skill that changed since the last run counts from this one on. In a thread: it reads files.
        if not components.skills.is_unchanged(user=run.user_id):
            await asyncio.to_thread(components.skills.rescan, user=run.user_id)
        agent = agents.get(options, custom, user=run.user_id)
        settings = components.loaded.settings
        return RunSetup(settings, agent, resources.sandboxes, resources.subagents.finish, model_name)

    async def aclose(self) -> None:
        """Close the model factories of current and earlier components."""
        for factory in (*self._outdated, *self._current.factories):
            await factory.aclose()


class SandboxCheck:
    """The self-test of the sandbox provider of one process."""

    def __init__(self, sandboxes: SandboxProvider, settings: SandboxSettings) -> None:
        self._sandboxes = sandboxes
        self._tier = tier_of(settings)
        self._found: SelfTest | None = None

    async def found(self) -> SelfTest:
        """Return whether commands can run; runs the self-test on the first call."""
        if self._found is None:
            self._found = await self._sandboxes.self_test()
        return self._found

    @asynccontextmanager
    async def announcing(self) -> AsyncIterator[None]:
        """Run the self-test concurrently with the block, and log a warning when commands cannot run."""
        trying = asyncio.create_task(self._announce())
        try:
            yield
        finally:
            trying.cancel()
            await asyncio.wait([trying])  # its process must end before the event loop does

    async def _announce(self) -> None:
        found = await self.found()
        if not found.ok:
            logger.warning("sandbox %s cannot run commands: %s", self._tier, found.reason)

    def health(self) -> dict[str, Any]:
        found = self._sandboxes.last_test or self._found
        return {
            "tier": self._tier,
            "ready": None if found is None else found.ok,
            "problem": None if found is None or found.ok else f"{found.reason} {found.fix}".strip(),
        }
