"""All configured MCP servers; a settings change replaces only the servers that it affects."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec
from weakref import WeakSet

from deerflow.addresses import Network
from deerflow.config.extensions import McpServerSettings
from deerflow.config.extras import install_hint
from deerflow.errors import NotFoundError
from deerflow.mcp.base import Connect, Limits, McpConnection, McpTool, ServerEnvironment, ServerStatus
from deerflow.mcp.pins import Approval, ToolPins
from deerflow.mcp.server import McpServer
from deerflow.observability.logs import Redactor
from deerflow.programs import kill_orphans

logger = logging.getLogger(__name__)

ServerTool = tuple[McpServer, McpTool]


class McpServers:
    """The enabled servers, by name."""

    def __init__(
        self,
        environment: ServerEnvironment,
        *,
        limits: Limits | None = None,
        redact: Redactor | None = None,
        pins: ToolPins | None = None,
    ) -> None:
        self._environment = environment
        self._limits = limits
        self._redact = redact or Redactor()
        self._pins = pins
        self._servers: dict[str, McpServer] = {}
        self._retired: WeakSet[McpServer] = WeakSet()  # alive as long as a run has its tools
        self._connect: Connect | None = None

    def __bool__(self) -> bool:
        return bool(self._servers)

    def use(
        self,
        settings: Mapping[str, McpServerSettings],
        *,
        networks: tuple[Network, ...] = (),
        approval: Approval = "changes",
    ) -> None:
        """Replace the set of servers; active runs keep the servers they started with.

        Args:
            networks: Allowed networks beyond the public internet, for servers configured over HTTP.
            approval: Which tools are withheld until a person approves them.

        """
        if self._pins is not None:
            self._pins.approval = approval
        wanted = {name: entry for name, entry in settings.items() if entry.enabled}
        if wanted and (hint := missing_package()):
            logger.warning("mcpServers are left out: a package is missing, get it with %s", hint)
            wanted = {}
        is_same_network = self._environment.networks == networks
        self._environment = replace(self._environment, networks=networks)
        kept = {
            name: server
            for name, server in self._servers.items()
            if server.settings == wanted.get(name) and (is_same_network or not server.settings.set_over_http)
        }
        for name, server in self._servers.items():
            if name not in kept:
                server.retire()
                self._retired.add(server)
        self._servers = {name: kept.get(name) or self._made(name, entry) for name, entry in wanted.items()}

    async def open(self) -> None:
        """Connect all servers, and wait until each is ready or has failed."""
        await asyncio.gather(*(server.open() for server in self._servers.values()))

    @asynccontextmanager
    async def opening(self) -> AsyncIterator[None]:
        """Connect all servers in the background of the block, so that its first run finds them ready."""
        task = asyncio.create_task(self.open())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def tools(self) -> list[ServerTool]:
        """Return the tools of all servers that are ready in time, connecting those that are not."""
        servers = list(self._servers.values())
        found: Sequence[Sequence[McpTool]] = await asyncio.gather(*(server.tools() for server in servers))
        return [(server, tool) for server, tools in zip(servers, found, strict=True) for tool in tools]

    async def test(self, name: str) -> ServerStatus:
        """Connect one server now, even in the pause after a failure, and return its status."""
        server = self._named(name)
        await server.open(at_once=True)
        return server.status

    async def approve(self, name: str, fingerprints: Mapping[str, str]) -> ServerStatus:
        """Offer withheld tools of a server, in the version that was reviewed."""
        server = self._named(name)
        await server.approve(fingerprints)
        return server.status

    @property
    def statuses(self) -> list[ServerStatus]:
        """The status of each server."""
        return [server.status for server in self._servers.values()]

    async def reset(self) -> None:
        """Close all connections; the next use reconnects."""
        await asyncio.gather(*(server.aclose() for server in self._servers.values()))

    async def aclose(self) -> None:
        """Close all servers, including retired ones."""
        await asyncio.gather(*(server.aclose() for server in (*self._servers.values(), *self._retired)))

    def _named(self, name: str) -> McpServer:
        if name not in self._servers:
            raise NotFoundError("MCP server", name, known=self._servers)
        return self._servers[name]

    def _made(self, name: str, settings: McpServerSettings) -> McpServer:
        return McpServer(
            name,
            settings,
            connect=self._open,
            environment=self._environment,
            limits=self._limits,
            redact=self._redact,
            pins=self._pins,
        )

    @asynccontextmanager
    async def _open(
        self, name: str, settings: McpServerSettings, environment: ServerEnvironment, limits: Limits
    ) -> AsyncIterator[McpConnection]:
        connect = await self._load_connect()
        async with connect(name, settings, environment, limits) as connection:
            yield connection

    async def _load_connect(self) -> Connect:
        """Import the SDK in a thread, since that takes a second; before the first import, kill orphans."""
        if self._connect is None:
            await asyncio.to_thread(kill_orphans)
            self._connect = await asyncio.to_thread(_import_connect)
        return self._connect


def _import_connect() -> Connect:
    from deerflow.mcp.session import connect  # noqa: PLC0415 - an extra, and it takes a second to import

    return connect


def missing_package() -> str | None:
    """Return how to install the MCP SDK; None if it is installed."""
    return None if find_spec("mcp") else install_hint("mcp")
