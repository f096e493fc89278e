"""Connects a starting sandbox to the network: opens a port in its network namespace and serves the proxy."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from deerflow.errors import SandboxUnavailableError
from deerflow.sandbox import netns_listener
from deerflow.sandbox.init_process import InnerProcess
from deerflow.sandbox.network import PORT, NetworkPolicy, Proxy

_DOORWAY = Path(netns_listener.__file__)
OPEN_SECONDS = 10.0


def proxy_environment() -> dict[str, str]:
    """Return the environment variables that configure programs for the proxy."""
    url = f"http://127.0.0.1:{PORT}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
    local = "localhost,127.0.0.1,::1"
    return {**dict.fromkeys(names, url), "NO_PROXY": local, "no_proxy": local}


class Egress:
    """Serves a sandbox's proxy while the sandbox runs."""

    def __init__(self, policy: NetworkPolicy, *, uid: int | None, name: str) -> None:
        self._uid = uid
        self._proxy = Proxy(policy, name)

    @asynccontextmanager
    async def serving(self, inner: InnerProcess) -> AsyncIterator[None]:
        """Open the proxy's port in the sandbox and serve it until the block exits."""
        async with asyncio.timeout(OPEN_SECONDS):
            pid = await asyncio.shield(inner.known)
            if pid is None:
                raise SandboxUnavailableError("the sandbox ended before its network was there")
            listener = await self._open_port(pid)
        async with self._proxy.serving(listener):
            yield

    async def _open_port(self, pid: int) -> socket.socket:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            user = -1 if self._uid is None else self._uid
            helper = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(_DOORWAY)),
                *(str(pid), str(theirs.fileno()), str(PORT), str(user)),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env={},
            )
            _, said = await helper.communicate()
            if helper.returncode != 0:
                last = said.decode(errors="replace").strip().rpartition("\n")[2]
                raise SandboxUnavailableError(f"the sandbox's network could not be opened: {last}")
            _, fds, _, _ = socket.recv_fds(ours, 1, 1)
        return socket.socket(fileno=fds[0])
