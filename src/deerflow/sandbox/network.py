"""Egress proxy, a sandbox's only network access: it connects to the hosts that the operator allows.

The sandbox's network namespace has only a loopback. This process listens on one socket there, opened by the
program `netns_listener.py`: it accepts `CONNECT` requests, resolves the host itself, checks every address,
and connects to the address that it checked, so that DNS rebinding is not possible.
"""

import asyncio
import logging
import re
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from deerflow.addresses import Address, Network, check_address, look_up, parse_network
from deerflow.config.sandbox import NetworkSettings
from deerflow.errors import AddressRefusedError, ConfigError, SandboxUnavailableError
from deerflow.sandbox import netns_listener

logger = logging.getLogger(__name__)

PORT = 3128
"""The proxy's port in a sandbox."""
OPEN_SECONDS = 10.0
HEAD_SECONDS = 10.0
CONNECT_SECONDS = 20.0
MAX_HEAD_BYTES = 16_384
MAX_CONNECTIONS = 64
_CHUNK = 65_536
_DEFAULT_PORTS = (80, 443)
_CIDRS = "sandbox.network.allow_cidrs"
_HOST = re.compile(
    r"(?=.{1,253}$)([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*"
)

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a host to its addresses."""


class EgressError(Exception):
    """The proxy refuses to connect; the status and the reason are sent to the program in the sandbox."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class HostRule:
    """One entry of `sandbox.network.allow`."""

    host: str
    """A host name, or `.example.org` for all its subdomains."""
    port: int | None

    def allows(self, host: str, port: int) -> bool:
        ports = _DEFAULT_PORTS if self.port is None else (self.port,)
        named = host.endswith(self.host) if self.host.startswith(".") else host == self.host
        return named and port in ports


def parse_rule(text: str) -> HostRule:
    """Parse a rule: `host`, `host:port`, or `*.host` for all subdomains."""
    name, colon, port = text.strip().lower().rstrip(".").partition(":")
    host = name[1:] if name.startswith("*.") else name
    if not _HOST.fullmatch(host.lstrip(".")) or (colon and not (port.isascii() and port.isdigit())):
        raise ConfigError(
            f"sandbox.network.allow: '{text}' is no host; use names such as a.example.com, *.example.org "
            "or example.org:8443 (a bare '*' is not possible)"
        )
    number = int(port) if colon else None
    if number is not None and not 0 < number < 65536:
        raise ConfigError(f"sandbox.network.allow: '{text}' has no valid port (1 to 65535)")
    return HostRule(host, number)


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """The allowed hosts and address ranges."""

    rules: tuple[HostRule, ...] = ()
    ranges: tuple[Network, ...] = ()

    @classmethod
    def from_settings(cls, settings: NetworkSettings) -> "NetworkPolicy":
        """Create the policy; raise `ConfigError` for an invalid entry."""
        return cls(
            tuple(parse_rule(text) for text in settings.allow),
            tuple(parse_network(text, setting=_CIDRS) for text in settings.allow_cidrs),
        )

    @property
    def is_open(self) -> bool:
        return bool(self.rules)

    def check_host(self, host: str, port: int) -> None:
        """Raise `EgressError` unless a rule allows the host and port."""
        if not any(rule.allows(host, port) for rule in self.rules):
            raise EgressError("403 Forbidden", f"{host}:{port} is not in sandbox.network.allow")

    def check_address(self, text: str) -> Address:
        """Return the address if it is public or in an allowed range; else raise `EgressError`."""
        try:
            return check_address(text, allowed=self.ranges, setting=_CIDRS)
        except AddressRefusedError as error:
            raise EgressError("403 Forbidden", str(error)) from error


def proxy_environment() -> dict[str, str]:
    """Return the environment variables that configure programs for the proxy."""
    url = f"http://127.0.0.1:{PORT}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
    local = "localhost,127.0.0.1,::1"
    return {**dict.fromkeys(names, url), "NO_PROXY": local, "no_proxy": local}


@asynccontextmanager
async def serve_proxy(
    policy: NetworkPolicy, pid: int | None, *, name: str, uid: int | None
) -> AsyncIterator[None]:
    """Open the proxy's port in the network namespace of process `pid` and serve it until the block exits."""
    if pid is None:
        raise SandboxUnavailableError("the sandbox ended before its network was there")
    async with asyncio.timeout(OPEN_SECONDS):
        listener = await _open_port(pid, uid)
    async with Proxy(policy, name).serving(listener):
        yield


async def _open_port(pid: int, uid: int | None) -> socket.socket:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        helper = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", netns_listener.__file__),
            *(str(pid), str(theirs.fileno()), str(PORT), str(-1 if uid is None else uid)),
            pass_fds=(theirs.fileno(),),
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={},
        )
        _, errors = await helper.communicate()
        if helper.returncode != 0:
            last = errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise SandboxUnavailableError(f"the sandbox's network could not be opened: {last}")
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    return socket.socket(fileno=fds[0])


@dataclass(slots=True)
class Proxy:
    """Serves one sandbox; every connection attempt is logged with its outcome."""

    policy: NetworkPolicy
    name: str
    """Name of the sandbox in the log."""
    resolve: Resolve = look_up
    _handlers: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def serving(self, listener: socket.socket) -> AsyncIterator[None]:
        """Serve on `listener` until the block exits; then close every connection."""
        listener.setblocking(False)
        server = await asyncio.start_server(self._accept, sock=listener, limit=MAX_HEAD_BYTES)
        try:
            yield
        finally:
            server.close()
            for handler in list(self._handlers):
                handler.cancel()
            await asyncio.gather(*self._handlers, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        try:
            if len(self._handlers) > MAX_CONNECTIONS:
                raise EgressError("503 Too many connections", "too many connections at once")
            await self._serve(reader, writer)
        except EgressError as error:
            logger.warning("sandbox %s: connection refused: %s", self.name, error)
            await _answer(reader, writer, error)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            logger.info("sandbox %s: connection failed: %s", self.name, error)
            await _answer(reader, writer, EgressError("502 Bad Gateway", "the host could not be reached"))
        finally:
            self._handlers.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        host, port = parse_connect(head)
        self.policy.check_host(host, port)
        async with asyncio.timeout(CONNECT_SECONDS):
            addresses = [self.policy.check_address(text) for text in await self.resolve(host, port)]
            remote_reader, remote_writer = await _first_open(addresses, port)
        address = remote_writer.get_extra_info("peername")[0]
        logger.info("sandbox %s: connected to %s:%s (%s)", self.name, host, port, address)
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            async with asyncio.TaskGroup() as copying:
                copying.create_task(_copy(reader, remote_writer))
                copying.create_task(_copy(remote_reader, writer))
        finally:
            remote_writer.close()


def parse_connect(head: bytes) -> tuple[str, int]:
    """Return host and port of a `CONNECT` request; raise `EgressError` for anything else."""
    parts = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    if len(parts) != 3 or parts[0] != "CONNECT":
        raise EgressError("405 Method not allowed", f"only CONNECT is served, not {parts[0][:20]!r}")
    host, colon, port = parts[1].rpartition(":")
    host = host.lower().rstrip(".")
    if not colon or not _HOST.fullmatch(host) or not re.fullmatch(r"[0-9]{1,5}", port):
        raise EgressError("400 Bad request", f"{parts[1][:100]!r} is not host:port")
    return host, int(port)


async def _first_open(
    addresses: Sequence[Address], port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first of the checked addresses that accepts."""
    last: OSError = OSError("the host has no address")
    for address in addresses[:4]:
        try:
            return await asyncio.open_connection(str(address), port)
        except OSError as error:
            last = error
    raise last


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, error: EgressError) -> None:
    with suppress(OSError, TimeoutError):
        body = f"{error}\n".encode()
        head = f"HTTP/1.1 {error.status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
        await writer.drain()
        writer.write_eof()
        # closing with unread data would reset the connection and lose the response
        async with asyncio.timeout(1):
            while await reader.read(_CHUNK):
                pass
