"""One MCP server: connected on first use, shared by all runs, reconnected after it failed.

A dedicated task owns the connection, since the task that opens it must also close it. All others use `tools`
and `call`. A slow or hanging server delays the first run by a few seconds and the others not at all: it
continues to connect in the background. After a failure it is not retried for a while, longer each time.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from deerflow.config.extensions import McpServerSettings
from deerflow.config.secrets import hidden_values
from deerflow.connection_errors import known_reason, without_objects
from deerflow.errors import DeerFlowError, McpError
from deerflow.mcp.base import (
    START_SECONDS,
    Connect,
    ConnectionLostError,
    Limits,
    Listing,
    McpAnswer,
    McpConnection,
    McpTool,
    Progress,
    ServerEnvironment,
    ServerStatus,
    SessionLostError,
    WithheldTool,
    call_seconds,
    first_of,
)
from deerflow.mcp.pins import ToolPins
from deerflow.observability.logs import Redactor

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 300.0
RETRY_WAIT_SECONDS = 3.0
"""How long a run waits for a server whose last attempt failed."""
CLOSING_SECONDS = 5.0
CHANGE_SECONDS = 1.0
"""The minimum interval between two listings of a server whose tools change."""


class McpServer:
    """A configured server; it connects on first use."""

    def __init__(
        self,
        name: str,
        settings: McpServerSettings,
        *,
        connect: Connect,
        environment: ServerEnvironment,
        limits: Limits | None = None,
        redact: Redactor | None = None,
        pins: ToolPins | None = None,
    ) -> None:
        self.name = name
        self.settings = settings
        self._connect = connect
        self._environment = environment
        self._limits = limits or Limits()
        self._redact = redact or Redactor()
        self._redact.learn(hidden_values(settings.model_dump()))
        self._owner: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[McpConnection | None] | None = None
        self._began = 0.0
        self._closing = asyncio.Event()
        self._tools: tuple[McpTool, ...] = ()
        self._listing = Listing()
        self._withheld: dict[str, WithheldTool] = {}
        self._pins = pins
        self._problem: str | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._calls = 0
        self._is_retired = False

    @property
    def status(self) -> ServerStatus:
        """The current status."""
        names = tuple(tool.call_name for tool in self._tools)
        if self._opened is not None and self._opened.done():
            withheld = tuple(self._withheld.values())
            return ServerStatus(self.name, "ready", None, names, self._listing.left_out, withheld)
        if self._opened is not None:
            return ServerStatus(self.name, "opening", self._problem)
        if self._problem is not None:
            return ServerStatus(self.name, "failed", self._problem)
        return ServerStatus(self.name, "idle")

    async def tools(self) -> tuple[McpTool, ...]:
        """Return its tools; none while it is not ready or unreachable: `status` says why."""
        wait_seconds = self.settings.run_wait_seconds
        if self._failures:
            wait_seconds = min(wait_seconds, RETRY_WAIT_SECONDS)
        is_opening = self._opened is not None and not self._opened.done()
        try:
            # Counted from the start of the attempt: later runs do not wait the full time again.
            async with asyncio.timeout_at((self._began if is_opening else _now()) + wait_seconds):
                if not await self.open():
                    return ()
                if self._withheld:  # they may have been approved meanwhile, possibly in another process
                    await self._apply_pins()
                return self._tools
        except TimeoutError:
            self._report_slow_start(wait_seconds)
            return ()

    async def open(self, *, at_once: bool = False) -> bool:
        """Connect, unless connected or in the pause after a failure; return whether it is ready.

        Args:
            at_once: Skip the pause after a failure.

        """
        if not at_once and self._opened is None and _now() < self._retry_at:
            return False
        return await self._connection() is not None

    async def approve(self, fingerprints: Mapping[str, str]) -> None:
        """Offer withheld tools in their current version.

        Args:
            fingerprints: The fingerprints that the person reviewed, by tool.

        """
        if self._pins is None or not await self.open(at_once=True):
            raise McpError(f"The MCP server '{self.name}' cannot be reached: {self._problem}")
        await self._pins.approve(self.name, self.settings, self._listing.tools, fingerprints)
        await self._apply_pins()

    async def call(
        self, name: str, arguments: Mapping[str, Any], *, progress: Progress = lambda text: None
    ) -> McpAnswer:
        """Call a tool; failures raise an `McpError` that says what to do."""
        self._calls += 1
        try:
            try:
                return await self._call(name, arguments, progress)
            except SessionLostError:  # nothing was done: retry on a new connection
                return await self._call(name, arguments, progress)
        finally:
            self._calls -= 1
            self._close_if_retired()

    async def _call(self, name: str, arguments: Mapping[str, Any], progress: Progress) -> McpAnswer:
        connection = await self._connection()
        if connection is None:
            reason = self._problem or "it was closed meanwhile; call it again"
            raise McpError(f"The MCP server '{self.name}' cannot be reached: {reason}")
        seconds = call_seconds(self.settings)
        try:
            async with asyncio.timeout(seconds) as limit:
                return await connection.call(name, arguments, progress=progress)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise McpError(
                f"{name} of the MCP server '{self.name}' gave no answer within {seconds:g} seconds and was "
                "told to stop. It may have had an effect: look before you call it again."
            ) from error
        except SessionLostError as error:
            connection.over.set()
            raise SessionLostError(f"The MCP server '{self.name}' knows this session no longer") from error
        except ConnectionLostError as error:
            connection.over.set()  # the next call reconnects
            raise McpError(
                f"The MCP server '{self.name}' was lost during the call: {self._redact(str(error))}. It may "
                "have had an effect: look before you call it again."
            ) from error
        except McpError as error:
            reason = self._redact(str(error))
            raise McpError(f"The MCP server '{self.name}' failed at {name}: {reason}") from error

    def retire(self) -> None:
        """Keep it for runs that have its tools, and disconnect whenever no call is active."""
        self._is_retired = True
        self._close_if_retired()

    async def aclose(self) -> None:
        """Close the connection and end the server's process, if it has one."""
        owner = self._owner
        if owner is None:
            return
        self._closing.set()
        if self._opened is not None and self._opened.done():
            await asyncio.wait([owner], timeout=CLOSING_SECONDS)
        if not owner.done():
            owner.cancel()
        await asyncio.gather(owner, return_exceptions=True)

    def _close_if_retired(self) -> None:
        if self._is_retired and not self._calls:
            self._closing.set()

    async def _connection(self) -> McpConnection | None:
        """Return the open connection, connecting if needed; None if that fails."""
        while True:
            if self._opened is None:
                self._opened = asyncio.get_running_loop().create_future()
                self._began = _now()
                self._closing = asyncio.Event()
                self._owner = asyncio.create_task(self._own_connection(self._opened), name=f"mcp-{self.name}")
            owner = self._owner
            connection = await asyncio.shield(self._opened)
            is_ending = connection is not None and (connection.over.is_set() or self._closing.is_set())
            if not is_ending or owner is None:
                return connection
            await asyncio.wait([owner])  # it just ended and is being closed

    async def _own_connection(self, opened: "asyncio.Future[McpConnection | None]") -> None:
        """Own the connection until it ends or is closed; all its errors are handled here."""
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self.settings.session_init_timeout or START_SECONDS) as limit:
                    opening = self._connect(self.name, self.settings, self._environment, self._limits)
                    connection = await stack.enter_async_context(opening)
                    await self._set_listing(await connection.tools())
                self._problem, self._failures = None, 0
                opened.set_result(connection)
                await self._until_over(connection)
                if connection.over.is_set() and not self._closing.is_set():
                    self._note(await connection.why())
        except TimeoutError as error:
            seconds = self.settings.session_init_timeout or START_SECONDS
            self._fail(f"it was not ready after {seconds:g} seconds" if limit.expired() else explain(error))
        except Exception as error:  # servers, transports and the SDK raise arbitrary errors
            self._fail(explain(error))
        finally:
            self._opened = self._owner = None
            if not opened.done():
                opened.set_result(None)

    async def _until_over(self, connection: McpConnection) -> None:
        """Wait for the connection to end; meanwhile update changed tools."""
        ends = [asyncio.ensure_future(event.wait()) for event in (connection.over, self._closing)]
        changed = asyncio.ensure_future(connection.changed.wait())
        try:
            while not any(end.done() for end in ends):
                await asyncio.wait([*ends, changed], return_when=asyncio.FIRST_COMPLETED)
                if changed.done() and not any(end.done() for end in ends):
                    connection.changed.clear()
                    changed = asyncio.ensure_future(connection.changed.wait())
                    await self._refresh_tools(connection)
                    await asyncio.wait(ends, timeout=CHANGE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiting in (*ends, changed):
                waiting.cancel()

    async def _refresh_tools(self, connection: McpConnection) -> None:
        try:
            await self._set_listing(await connection.tools())
        except McpError as error:  # if the connection failed, `over` is set separately
            reason = self._redact(str(error))
            logger.warning("MCP server %s does not say what its tools are now: %s", self.name, reason)

    async def _set_listing(self, listing: Listing) -> None:
        """Replace the server's tools by a new listing."""
        self._listing = listing
        before = set(self._withheld)
        await self._apply_pins()
        for tool in (tool for name, tool in self._withheld.items() if name not in before):
            logger.warning(
                "MCP server %s: tool %.80r is withheld: %s; `deerflow mcp approve %s` shows and approves it",
                self.name,
                tool.name,
                tool.reason,
                self.name,
            )

    async def _apply_pins(self) -> None:
        """Offer the tools that need no approval; if they are unchanged, the tuple stays the same object."""
        listed = self._listing.tools
        if self._pins is not None:
            self._withheld = await self._pins.withheld(self.name, self.settings, listed)
        found = tuple(tool for tool in listed if tool.name not in self._withheld)
        if found != self._tools:
            self._tools = found

    def _report_slow_start(self, seconds: float) -> None:
        if self._problem is None:  # otherwise the problem is known and was logged
            what = f"it was not ready after {seconds:g} seconds (run_wait_seconds)"
            self._problem = f"{what}; until it is, runs go on without its tools"
            logger.warning("MCP server %s: %s", self.name, self._problem)

    def _note(self, problem: str) -> None:
        self._problem = self._redact(problem)
        logger.warning("MCP server %s ended: %s", self.name, self._problem)

    def _fail(self, problem: str) -> None:
        pause = min(FIRST_PAUSE_SECONDS * 2**self._failures, LONGEST_PAUSE_SECONDS)
        self._failures += 1
        self._retry_at = _now() + pause
        self._problem = self._redact(problem)
        logger.warning("MCP server %s failed: %s", self.name, self._problem)


def explain(error: BaseException) -> str:
    """Return the first error as a sentence."""
    error = first_of(error)
    if isinstance(error, DeerFlowError):
        return str(error)
    if (reason := known_reason(error)) is not None:
        return reason
    detail = " ".join(without_objects(str(error)[:2000]).split())[:500]
    return f"{type(error).__name__}: {detail}" if detail else type(error).__name__


def _now() -> float:
    return asyncio.get_running_loop().time()
