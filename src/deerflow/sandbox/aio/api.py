"""Client of a container of the all-in-one sandbox image: its HTTP API and its shell.

Commands run in the container's shell session, one at a time, and their output is streamed. Each runs in a
new bash that restores the working directory and the exports of the previous one. So `exit` ends the command
and not the session, and nothing depends on the content of a terminal screen.
"""

import asyncio
import json
import logging
import secrets
import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp

from deerflow.connection_errors import connection_reason
from deerflow.errors import SandboxError, SandboxTimeoutError
from deerflow.sandbox.base import CommandResult
from deerflow.sandbox.paths import WORKSPACE
from deerflow.sandbox.process import OutputBuffer, to_the_end

logger = logging.getLogger(__name__)

CALL_SECONDS = 15.0
"""Timeout of calls that do not wait for a command."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024


class ContainerGoneError(SandboxError):
    """The container no longer responds."""

    code = "container_gone"


class NoSuchRouteError(SandboxError):
    """The image does not have this route: it is too old, or too new."""

    code = "no_such_route"


class ContainerRefusedError(SandboxError):
    """The container responded with an error."""

    code = "container_refused"


class AioApi:
    """One container's API; its responses are untrusted."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url.rstrip("/")
        self._http = http

    async def is_ready(self) -> bool:
        try:
            async with self._request("GET", "/v1/sandbox", seconds=5) as response:
                return response.status == 200
        except ContainerGoneError:
            return False

    async def call(
        self, path: str, body: Mapping[str, Any], *, seconds: float = CALL_SECONDS
    ) -> Mapping[str, Any]:
        """Post `body` to `path` and return the `data` of the response."""
        async with self._request("POST", path, seconds=seconds, json=body) as response:
            payload = await _json(response)
        if response.status == 404 and payload.get("detail") == "Not Found":
            raise NoSuchRouteError(f"the sandbox image has no {path}; use a newer image")
        data = payload.get("data")
        if response.status >= 300 or payload.get("success") is False or not isinstance(data, dict):
            raise ContainerRefusedError(_reason(payload, response.status))
        return data

    async def cleanup(
        self, path: str, body: Mapping[str, Any] | None = None, *, method: str = "POST"
    ) -> None:
        """Make a cleanup call and ignore its response and a lost connection."""
        with suppress(ContainerGoneError):
            async with self._request(method, path, seconds=5, json=body or {}) as response:
                await _at_most(response, 65_536)

    async def run_internal(self, command: str, *, seconds: float) -> Mapping[str, Any]:
        """Run an internal command to its end in a separate session, and close that session."""
        body = {"command": command, "timeout": seconds}
        try:
            response = await self.call(
                "/v1/bash/exec", {**body, "max_output_length": 0}, seconds=seconds + CALL_SECONDS
            )
            await self.cleanup(f"/v1/bash/sessions/{_session(response)}/close")
        except NoSuchRouteError:
            response = await self.call(
                "/v1/shell/exec", {**body, "truncate": False}, seconds=seconds + CALL_SECONDS
            )
            await self.cleanup(f"/v1/shell/sessions/{_session(response)}", method="DELETE")
        return response

    async def download(self, path: str, *, max_bytes: int) -> bytes:
        """Return a file's bytes from the container, at most `max_bytes` + 1."""
        async with self._request("GET", "/v1/file/download", seconds=120, params={"path": path}) as response:
            if response.status >= 300:
                raise ContainerRefusedError(_reason(await _json(response), response.status))
            return await _at_most(response, max_bytes + 1)

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, *, seconds: float, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            # no redirects: an untrusted container must not direct requests to other hosts
            async with self._http.request(
                method, f"{self.url}{path}", timeout=timeout, allow_redirects=False, **options
            ) as response:
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ContainerGoneError(
                f"the sandbox container does not answer ({connection_reason(error)}); "
                "run it again for a new one"
            ) from error


def open_http() -> aiohttp.ClientSession:
    """Create the HTTP client: no cookies, which containers would share, and no decompression bombs."""
    return aiohttp.ClientSession(
        cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, headers={"Accept-Encoding": "identity"}
    )


async def wait_until_ready(api: AioApi, *, seconds: float) -> None:
    """Poll until a container responds; raise `ContainerGoneError` after `seconds`."""
    pause = 0.05
    try:
        async with asyncio.timeout(seconds):
            while not await api.is_ready():
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, 1.0)
    except TimeoutError as error:
        raise ContainerGoneError(
            f"the sandbox container did not answer within {seconds:g}s of its start; see its logs"
        ) from error


async def _json(response: aiohttp.ClientResponse) -> Mapping[str, Any]:
    body = await _at_most(response, MAX_ANSWER_BYTES)
    try:
        payload = json.loads(body) if len(body) < 1_000_000 else await asyncio.to_thread(json.loads, body)
    except ValueError:
        return {}
    return payload if isinstance(payload, dict) else {}


async def _at_most(response: aiohttp.ClientResponse, most: int) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(65_536):
        body += chunk
        if len(body) >= most:
            return bytes(body[:most])
    return bytes(body)


def _reason(payload: Mapping[str, Any], status: int) -> str:
    reason = payload.get("message") or payload.get("detail") or f"status {status}"
    return f"the sandbox container refused: {str(reason)[:500]}"


def _session(response: Mapping[str, Any]) -> str:
    return quote(str(response.get("session_id") or ""), safe="")


POLL_SECONDS = 10.0
"""Long-poll timeout for new output; available output is returned at once."""
GRACE_SECONDS = 10.0
"""Margin of the container's own timeout over the server's: it only takes effect when the server has died."""
STOP_SECONDS = 5.0
STATE_FILE = "/tmp/.deerflow-shell"
TOO_MUCH = "[stopped: it printed too much; send the output to a file and look at parts of it]"

# $1 command, $2 state file, $3 marker in the environment by which all its descendants are found, $4 names of
# the variables that only this command has.
SCRIPT = rf"""
cd {WORKSPACE} 2>/dev/null
[ -r "$2" ] && . "$2" 2>/dev/null
export DEERFLOW_COMMAND=$3
__state=$2
__once=$4
__keep() {{
  {{ set +eux; }} 2>/dev/null
  local IFS=' '
  unset -- $__once
  {{ builtin export -p; builtin printf 'cd -- %q 2>/dev/null\n' "$PWD"; }} >"$__state.new" 2>/dev/null &&
    command mv -f "$__state.new" "$__state" 2>/dev/null
}}
trap __keep EXIT
eval "set --
$1"
"""
KILL_MARKED = r"""
for round in 1 2 3; do
  for environ in /proc/[0-9]*/environ; do
    if grep -qsz "^DEERFLOW_COMMAND=$1\$" "$environ"; then
      pid=${environ#/proc/}; pid=${pid%/environ}
      [ "$pid" = "$$" ] || kill -KILL "$pid" 2>/dev/null
    fi
  done
done
"""


@dataclass(frozen=True, slots=True)
class _Running:
    session: str
    command_id: str
    marker: str


class AioShell:
    """Runs commands in one container, one at a time."""

    def __init__(self, api: AioApi) -> None:
        self._api = api
        self._lock = asyncio.Lock()
        self._session: str | None = None
        self._is_old_image = False

    async def run(
        self,
        command: str,
        *,
        timeout: float,
        output: OutputBuffer,
        environment: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run `command` to its end; on timeout or cancellation kill it and its descendants."""
        async with self._lock:
            marker = secrets.token_hex(8)
            once = environment or {}
            shell = ("bash", "--noprofile", "--norc", "-c", SCRIPT, "bash")
            argv = (*shell, command, STATE_FILE, marker, " ".join(once))
            # Assigned by the session's shell: values on a command line could be read by every process.
            assigned = "".join(f"{name}={shlex.quote(value)} " for name, value in once.items())
            script = f"{assigned}{shlex.join(argv)} </dev/null 2>&1"
            if not self._is_old_image:
                try:
                    return await self._run(command, script, marker, timeout=timeout, output=output)
                except NoSuchRouteError:
                    self._session, self._is_old_image = None, True
            return await self._run_without_streaming(command, script, marker, timeout=timeout, output=output)

    async def _run(
        self, command: str, script: str, marker: str, *, timeout: float, output: OutputBuffer
    ) -> CommandResult:
        running = await self._start(script, marker, timeout)
        is_over = False
        try:
            async with asyncio.timeout(timeout):
                exit_code = await self._follow(running, output)
            is_over = exit_code is not None
        except TimeoutError as error:
            await self._stop(running)
            is_over = True
            raise SandboxTimeoutError(command, timeout, output.text()) from error
        finally:
            if not is_over:  # cancelled, failed, or too much output
                await to_the_end(self._stop(running))
        if exit_code is None:
            return CommandResult(137, f"{output.text()}\n{TOO_MUCH}")
        return CommandResult(exit_code, output.text())

    async def _start(self, script: str, marker: str, timeout: float) -> _Running:
        """Start the script; replace a lost or broken session once."""
        body = {"command": script, "async_mode": True, "hard_timeout": timeout + GRACE_SECONDS}
        started = await self._call_in_session("/v1/bash/exec", body, id_key="session_id")
        if started is None:
            session = await self._api.call("/v1/bash/sessions/create", {"exec_dir": WORKSPACE})
            self._session = str(session.get("session_id") or "")
            started = await self._api.call("/v1/bash/exec", {**body, "session_id": self._session})
        session_id, command_id = started.get("session_id"), started.get("command_id")
        if not isinstance(session_id, str) or not isinstance(command_id, str):
            raise ContainerRefusedError("the sandbox container named no command")
        return _Running(session_id, command_id, marker)

    async def _call_in_session(
        self, path: str, body: Mapping[str, Any], *, id_key: str, seconds: float = CALL_SECONDS
    ) -> Mapping[str, Any] | None:
        """Call with the present session; None when there is none or it is broken and had to be closed."""
        if self._session is None:
            return None
        try:
            return await self._api.call(path, {**body, id_key: self._session}, seconds=seconds)
        except ContainerRefusedError as error:
            logger.info("shell session %s is replaced: %s", self._session, error)
            await self._close_session()
            return None

    async def _follow(self, running: _Running, output: OutputBuffer) -> int | None:
        """Read the output until the command ends and return its exit code; None when it printed too much."""
        offsets: dict[str, Any] = {"offset": 0, "stderr_offset": 0}
        wait = True
        while True:
            body = {"session_id": running.session, "command_id": running.command_id, **offsets}
            body |= {"wait": wait, "wait_timeout": POLL_SECONDS}
            response = await self._api.call("/v1/bash/output", body, seconds=POLL_SECONDS + GRACE_SECONDS)
            pieces = [piece for key in ("stdout", "stderr") if (piece := response.get(key))]
            for piece in pieces:
                output.feed(str(piece).encode("utf-8", "replace"))
            offsets = {key: response.get(key) or offsets[key] for key in offsets}
            if output.is_too_much:
                return None
            status = (response.get("command") or {}).get("status")
            if status not in ("pending", "running"):
                if not pieces:
                    return _exit_code(response.get("command") or {})
                wait = False  # it has ended: fetch the remaining output

    async def _stop(self, running: _Running) -> None:
        """Kill the command and its descendants, and close the session."""
        await self._api.cleanup("/v1/bash/kill", {"session_id": running.session, "signal": "SIGKILL"})
        await self._kill_marked(running.marker)

    async def _kill_marked(self, marker: str) -> None:
        with suppress(SandboxError):
            await self._api.run_internal(
                f"bash -c {shlex.quote(KILL_MARKED)} sweep {marker}", seconds=STOP_SECONDS
            )
        await self._close_session()

    async def _close_session(self) -> None:
        session, self._session = self._session, None
        if session and self._is_old_image:
            await self._api.cleanup(f"/v1/shell/sessions/{quote(session, safe='')}", method="DELETE")
        elif session:
            await self._api.cleanup(f"/v1/bash/sessions/{quote(session, safe='')}/close")

    async def _run_without_streaming(
        self, command: str, script: str, marker: str, *, timeout: float, output: OutputBuffer
    ) -> CommandResult:
        """Run a command on an image without `/v1/bash`: its output arrives only at its end."""
        body = {"command": script, "async_mode": False, "timeout": timeout, "truncate": False}
        body |= {"exec_dir": WORKSPACE, "no_change_timeout": int(timeout + GRACE_SECONDS)}
        is_over = False
        try:
            path, seconds = "/v1/shell/exec", timeout + GRACE_SECONDS
            response = await self._call_in_session(path, body, id_key="id", seconds=seconds)
            if response is None:
                response = await self._api.call(path, body, seconds=seconds)
                self._session = str(response.get("session_id") or "") or None
            is_over = response.get("status") == "completed"
        finally:
            if not is_over:
                await to_the_end(self._kill_marked(marker))
        output.feed(str(response.get("output") or "").encode("utf-8", "replace"))
        if not is_over:
            raise SandboxTimeoutError(command, timeout, output.text())
        return CommandResult(_exit_code(response), output.text())


def _exit_code(command: Mapping[str, Any]) -> int:
    code = command.get("exit_code")
    if isinstance(code, int):
        return code if code >= 0 else 128 - code
    if command.get("status") in ("killed", "timed_out", "terminated", "hard_timeout"):
        return 137
    raise SandboxError("the sandbox's shell broke off without an exit code; run the command again")
