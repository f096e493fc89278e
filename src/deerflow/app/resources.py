"""Resources independent of settings edits: opened once, closed in reverse order."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from deerflow.config import LoadedSettings, Paths
from deerflow.lead.custom import CustomAgents
from deerflow.mcp import McpServers, ToolPins
from deerflow.mcp.base import Place
from deerflow.memory import MemoryService
from deerflow.observability.loop_delay import measuring_loop_delay
from deerflow.observability.opening import open_watch
from deerflow.observability.watch import Watch
from deerflow.runtime.spending import SideSpending
from deerflow.sandbox import SandboxProvider, choose_users_root, create_sandbox_provider
from deerflow.storage import OwnerLock, Storage, open_storage
from deerflow.subagents import SubagentExecutor


@dataclass(frozen=True, eq=False, slots=True)
class Resources:
    """The resources that outlive an edit of the settings, one field each."""

    paths: Paths
    watch: Watch
    storage: Storage
    owner: OwnerLock
    sandboxes: SandboxProvider
    subagents: SubagentExecutor
    custom_agents: CustomAgents
    mcp: McpServers
    memories: MemoryService
    spending: SideSpending


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
        sandboxes = create_sandbox_provider(settings.sandbox, skills_root=loaded.skills_root)
        stack.push_async_callback(sandboxes.aclose)
        place = Place(env=loaded.env, folder=loaded.project_root)
        mcp = McpServers(place, redact=watch.redact, pins=ToolPins(storage.store))
        stack.push_async_callback(mcp.aclose)
        yield Resources(
            paths=paths,
            watch=watch,
            storage=storage,
            owner=owner,
            sandboxes=sandboxes,
            subagents=SubagentExecutor(max_running=settings.subagents.max_running),
            custom_agents=CustomAgents(paths),
            mcp=mcp,
            memories=MemoryService(storage.store, redact=watch.redact),
            spending=SideSpending(storage.store),
        )
