"""`deerflow serve`: runs the gateway on a port."""

import asyncio
import errno
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from importlib.metadata import version
from pathlib import Path
from types import FrameType

import uvicorn
from typing_extensions import override

from deerflow.app import DeerFlow
from deerflow.cli.sharing import check_database, exit_code_of, tune_garbage_collector
from deerflow.config import SettingsSource
from deerflow.errors import ConfigError, DeerFlowError
from deerflow.gateway.app import GatewayOptions, create_app
from deerflow.gateway.guard import Network, is_loopback, parse_origin
from deerflow.gateway.server import server_config
from deerflow.observability import configure_logging, secrets_of

logger = logging.getLogger(__name__)

_GRACE_SECONDS = 3
"""How long open streams may delay a shutdown; their readers can reconnect."""


def execute(*, host: str, port: int, config: Path | None, concurrency: int | None = None) -> int:
    """Serve until stopped."""
    source = SettingsSource(config)
    loaded = source.current()
    if concurrency == 0:
        check_database(loaded, "--concurrency 0 leaves all runs to workers")
    configure_logging(loaded.settings.log_level, loaded.settings.logging.format, secrets=secrets_of(loaded))
    options = gateway_options(host, loaded.env)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # the line below replaces its start-up messages
    with closing(_listen(host, port)) as listener:
        address = f"http://{'[' + host + ']' if ':' in host else host}:{listener.getsockname()[1]}"
        runs = ", leaving all runs to workers" if concurrency == 0 else ""
        print(f"DeerFlow {version('deerflow')} on {address}{runs} (stop with Ctrl-C)", flush=True)
        tune_garbage_collector()
        return _serve(source, options, listener, concurrency)


def _serve(
    source: SettingsSource, options: GatewayOptions, listener: socket.socket, capacity: int | None
) -> int:
    failures: list[DeerFlowError] = []
    codes = [0]

    @asynccontextmanager
    async def opening() -> AsyncIterator[DeerFlow]:
        loop = asyncio.get_running_loop()
        try:
            async with DeerFlow.open(source, takes_over=True, capacity=capacity) as deerflow:
                server.hurry = lambda: loop.call_soon_threadsafe(deerflow.skip_grace)
                yield deerflow
            codes.append(exit_code_of(deerflow))
        except DeerFlowError as error:
            failures.append(error)
            raise

    server = _Server(server_config(create_app(opening, options), grace_seconds=_GRACE_SECONDS))
    # A DeerFlowError is printed as one message; Uvicorn would log its traceback as well.
    logging.getLogger("uvicorn.error").addFilter(lambda _: not failures)
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:  # Uvicorn has shut down gracefully and raises the signal again
        return codes[-1]
    except SystemExit:
        if not failures:
            raise
    if failures:
        raise failures[0]
    return codes[-1] if server.started else 1


class _Server(uvicorn.Server):
    """A server that on the first signal lets runs reach their next step, and on the second does not wait."""

    hurry: Callable[[], object] | None = None

    @override
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self.force_exit = True
            if self.hurry is not None:
                self.hurry()
        super().handle_exit(sig, frame)


def gateway_options(host: str, env: Mapping[str, str]) -> GatewayOptions:
    """Return the gateway's network options; refuse to listen for other machines without authentication."""
    origins = _origins(env.get("GATEWAY_CORS_ORIGINS", ""))
    options = GatewayOptions(
        checks_host=is_loopback(host),
        origins=origins,
        trusted_proxies=_networks(env.get("GATEWAY_TRUSTED_PROXIES", "")),
        has_docs=env.get("GATEWAY_ENABLE_DOCS", "true").lower() != "false",
    )
    if options.checks_host:
        return options
    if not auth_disabled(env):
        raise ConfigError(
            f"host {host} can be reached from other machines, and no login is configured. "
            "Listen on 127.0.0.1, or set DEER_FLOW_AUTH_DISABLED=1 if the network itself keeps strangers out."
        )
    logger.warning(
        "AUTHENTICATION IS OFF and %s can be reached from other machines: everybody who reaches this port "
        "can read all threads and start runs",
        host,
    )
    return options


def _origins(listed: str) -> tuple[str, ...]:
    origins = tuple(part.lower().rstrip("/") for part in _parts(listed))
    for origin in origins:
        if parse_origin(origin) is None:
            raise ConfigError(
                f"GATEWAY_CORS_ORIGINS: '{origin}' is no origin; list them like "
                "https://deerflow.example.org,http://localhost:3000 ('*' would let every page in)"
            )
    return origins


def _networks(listed: str) -> tuple[Network, ...]:
    networks: list[Network] = []
    for part in _parts(listed):
        try:
            networks.append(ipaddress.ip_network(part))
        except ValueError as error:
            raise ConfigError(
                f"GATEWAY_TRUSTED_PROXIES: '{part}' is no address ({error}); list the addresses or "
                "networks of proxies like 10.0.0.5,172.18.0.0/16"
            ) from error
    return tuple(networks)


def _parts(listed: str) -> list[str]:
    return [part.strip() for part in listed.split(",") if part.strip()]


def auth_disabled(env: Mapping[str, str]) -> bool:
    """Return whether the operator disabled authentication; ignored in production."""
    stage = env.get("DEER_FLOW_ENV") or env.get("ENVIRONMENT") or ""
    return env.get("DEER_FLOW_AUTH_DISABLED") == "1" and stage.lower() not in ("prod", "production")


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        wrong = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
        advice = (
            "Choose an address of this machine with --host (make run HOST=…)."
            if wrong
            else "Stop what uses the port, or choose another one with --port (make run PORT=…)."
        )
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}. {advice}") from error
    listener.listen(2048)
    return listener
