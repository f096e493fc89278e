"""Components built from the settings: rebuilt when they change, used by runs that start afterwards."""

import asyncio
import logging
from dataclasses import dataclass
from functools import partial

from deerflow.addresses import ALLOW_CIDRS, parse_network
from deerflow.app.configured import faults_of, summary
from deerflow.app.resources import Resources
from deerflow.config import LoadedSettings, ModelSettings, SettingsSource
from deerflow.config.faults import Fault
from deerflow.domain import RunRecord
from deerflow.errors import ConfigError
from deerflow.lead import LeadAgents, LeadDependencies
from deerflow.models import ModelFactory, discover
from deerflow.models.memory_model import own_model
from deerflow.observability import learn_secrets, secrets_of
from deerflow.runtime import RunSetup
from deerflow.runtime.spending import prices_of
from deerflow.skills import Skills
from deerflow.tools.acp import acp_tools
from deerflow.tools.mcp import McpToolbox

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False, slots=True)
class Components:
    """The components built from one value of the settings."""

    loaded: LoadedSettings
    models: ModelFactory
    agents: LeadAgents
    memory_models: ModelFactory | None = None
    """Creates the model used only by memory, if one is configured."""
    faults: tuple[Fault, ...] = ()
    """Configured items that do not work."""

    @property
    def factories(self) -> list[ModelFactory]:
        """The model factories, which hold connections."""
        return [each for each in (self.models, self.memory_models) if each is not None]


async def build_components(loaded: LoadedSettings, ground: Resources) -> Components:
    """Build the components for these settings; a new capability joins `LeadDependencies` here."""
    settings = loaded.settings
    models = ModelFactory(settings.models or await _found_models(loaded), env=loaded.env)
    memory_models = _memory_models(loaded)
    rooms = LeadDependencies(
        settings=settings,
        models=models,
        executor=ground.subagents,
        skills=_skills(loaded),
        checkpointer=ground.storage.checkpoints,
        store=ground.storage.store,
        agent_folders=[loaded.paths.home / "agents", loaded.project_root / "agents"],
        custom_agents=ground.custom_agents,
        memories=ground.memories,
        memory_models=memory_models,
        count_beside=partial(ground.spending.add, prices=prices_of(settings.models)),
        extra_tools=acp_tools(settings.acp_agents, loaded.env, loaded.extensions.mcp_servers),
    )
    networks = tuple(parse_network(text, setting=ALLOW_CIDRS) for text in settings.runs.webhook_allow_cidrs)
    # last: rejected settings must change nothing
    ground.mcp.use(loaded.extensions.mcp_servers, networks=networks, approval=settings.mcp.tool_approval)
    faults = tuple(await asyncio.to_thread(faults_of, loaded, models))  # it imports configured tools
    return Components(loaded, models, LeadAgents(rooms), memory_models, faults)


async def _found_models(loaded: LoadedSettings) -> tuple[ModelSettings, ...]:
    found = await discover(loaded.env)
    for key in found.unusable:
        logger.warning("%s", key.note)
    return found.models


def _memory_models(loaded: LoadedSettings) -> ModelFactory | None:
    own = loaded.settings.memory.backend_config.model
    if own is None:
        return None
    entry = own_model(own, name="memory", key="memory.backend_config.model")
    return ModelFactory([entry], env=loaded.env)


def _skills(loaded: LoadedSettings) -> Skills:
    disabled = [name for name, skill in loaded.extensions.skills.items() if not skill.enabled]
    path = loaded.settings.skills.container_path
    return Skills(loaded.skills_root, container_path=path, disabled=disabled)


class LiveComponents:
    """The components of the current settings; earlier ones are kept for the runs that use them."""

    def __init__(self, source: SettingsSource, ground: Resources, first: Components) -> None:
        self.source = source
        self._ground = ground
        self._now = first
        self._mcp = McpToolbox(ground.mcp)
        self._outdated: list[ModelFactory] = []
        self._refused: LoadedSettings | None = None
        self._problem: str | None = None
        self._refreshing = asyncio.Lock()

    @property
    def now(self) -> Components:
        """The components as of the last refresh."""
        return self._now

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
                await self._take_up(loaded)

    def _is_known(self, loaded: LoadedSettings) -> bool:
        return loaded is self._now.loaded or loaded is self._refused

    async def _take_up(self, loaded: LoadedSettings) -> None:
        secrets = list(secrets_of(loaded))
        learn_secrets(secrets)
        self._ground.watch.redact.learn(secrets)
        try:
            rooms = await build_components(loaded, self._ground)
        except ConfigError as error:
            self._refused, self._problem = loaded, f"the last good settings stay in force: {error}"
            logger.error("settings were not taken up; %s", self._problem)
            return
        # Runs in progress may still call their models; their agents are freed with the last of these runs.
        self._outdated += self._now.factories
        self._now, self._refused, self._problem = rooms, None, None
        self.log_faults()

    def log_faults(self) -> None:
        """Log the configured items that do not work, in one line."""
        if text := summary(self._now.faults):
            logger.warning("%s", text)

    async def prepare_run(self, run: RunRecord) -> RunSetup:
        """Return the setup of a run, from the current settings."""
        await self.refresh()  # the run may have been admitted by another process
        rooms, ground, options = self._now, self._ground, run.request.options
        if rooms.loaded.settings.acp_agents:  # before the sandbox is created: it mounts this read-only
            folders = ground.paths.thread(run.user_id, run.thread_id)
            folders.acp_workspace.mkdir(parents=True, exist_ok=True)
        name = None if options.is_bootstrap else options.agent_name
        own = ground.custom_agents.get(run.user_id, name) if name else None
        agents = rooms.agents.offering(await self._mcp.tools()) if ground.mcp else rooms.agents
        model_name = options.model_name or rooms.models.default_name
        await rooms.models.load(model_name)
        agent = agents.get(options, own)
        return RunSetup(rooms.loaded.settings, agent, ground.sandboxes, ground.subagents.finish, model_name)

    async def aclose(self) -> None:
        """Close the model factories of current and earlier components."""
        for factory in (*self._outdated, *self._now.factories):
            await factory.aclose()
