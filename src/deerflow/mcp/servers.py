"""All MCP servers of the settings; an edit replaces those that it changes and leaves the others alone."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import cast
from weakref import WeakSet

from deerflow.addresses import Network
from deerflow.config.aliases import resolve_use
from deerflow.config.extensions import McpServerSettings
from deerflow.config.extras import install_hint
from deerflow.errors import NotFoundError
from deerflow.mcp.base import Connect, Limits, Link, McpTool, Place, ServerStatus
from deerflow.mcp.pins import Approval, ToolPins
from deerflow.mcp.server import McpServer
from deerflow.observability.logs import Redactor
from deerflow.programs import kill_orphans

logger = logging.getLogger(__name__)

Offer = tuple[McpServer, McpTool]


class McpServers:
    """The servers that are on, by name."""

    def __init__(
        self,
        place: Place,
        *,
        limits: Limits | None = None,
        redact: Redactor | None = None,
        pins: ToolPins | None = None,
    ) -> None:
        self._place = place
        self._limits = limits
        self._redact = redact or Redactor()
        self._pins = pins
        self._servers: dict[str, McpServer] = {}
        self._retired: WeakSet[McpServer] = WeakSet()  # a run that still has its tools keeps it alive
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
        """Have these servers from now on; runs under way keep those that they began with.

        Args:
            networks: Where servers set over HTTP may be, beyond the public internet.
            approval: Which tools are withheld until a person approves them.

        """
        if self._pins is not None:
            self._pins.approval = approval
        wanted = {name: entry for name, entry in settings.items() if entry.enabled}
        if wanted and (hint := missing_package()):
            logger.warning("mcpServers are left out: a package is missing, get it with %s", hint)
            wanted = {}
        is_same_network = self._place.networks == networks
        self._place = replace(self._place, networks=networks)
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
        """Open all servers, and wait until each is ready or has failed."""
        await asyncio.gather(*(server.open() for server in self._servers.values()))

    @asynccontextmanager
    async def opening(self) -> AsyncIterator[None]:
        """Open all servers beside the block, so that its first run finds them ready."""
        task = asyncio.create_task(self.open())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def offers(self) -> list[Offer]:
        """Return the tools of all servers that are ready in time, opening those that are not open."""
        servers = list(self._servers.values())
        found: Sequence[Sequence[McpTool]] = await asyncio.gather(*(server.tools() for server in servers))
        return [(server, tool) for server, tools in zip(servers, found, strict=True) for tool in tools]

    async def test(self, name: str) -> ServerStatus:
        """Open one server now, also when it rests after a failure, and return how it is doing."""
        server = self._named(name)
        await server.open(at_once=True)
        return server.status

    async def approve(self, name: str, fingerprints: Mapping[str, str]) -> ServerStatus:
        """Offer tools of a server that were withheld, as they were looked at."""
        server = self._named(name)
        await server.approve(fingerprints)
        return server.status

    @property
    def statuses(self) -> list[ServerStatus]:
        """How the servers are doing."""
        return [server.status for server in self._servers.values()]

    async def reset(self) -> None:
        """Close all connections; whoever needs a server next opens it anew."""
        await asyncio.gather(*(server.aclose() for server in self._servers.values()))

    async def aclose(self) -> None:
        """Close everything."""
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
            place=self._place,
            limits=self._limits,
            redact=self._redact,
            pins=self._pins,
        )

    @asynccontextmanager
    async def _open(
        self, name: str, settings: McpServerSettings, place: Place, limits: Limits
    ) -> AsyncIterator[Link]:
        connect = await self._speaker()
        async with connect(name, settings, place, limits) as link:
            yield link

    async def _speaker(self) -> Connect:
        """Load what speaks the protocol, not on the loop: the SDK takes a second; and tidy up once."""
        if self._connect is None:
            await asyncio.to_thread(kill_orphans)
            self._connect = cast(
                Connect, await asyncio.to_thread(resolve_use, "deerflow.mcp.session:connect")
            )
        return self._connect


def missing_package() -> str | None:
    """Return how to install what speaks MCP; None when it is there."""
    return None if find_spec("mcp") else install_hint("mcp")
