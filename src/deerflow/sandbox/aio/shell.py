"""Runs commands in a container's shell session, one at a time, and streams their output.

Each command runs in a new bash that restores the working directory and the exports of the previous one. So
`exit` ends the command and not the session, and nothing depends on the content of a terminal screen.
"""

import asyncio
import logging
import secrets
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from deerflow.errors import SandboxError, SandboxTimeoutError
from deerflow.sandbox.aio.api import AioApi, NoSuchRouteError, RefusedError
from deerflow.sandbox.base import CommandResult
from deerflow.sandbox.finishing import to_the_end
from deerflow.sandbox.output import OutputBuffer
from deerflow.sandbox.paths import WORKSPACE

logger = logging.getLogger(__name__)

POLL_SECONDS = 10.0
"""Long-poll timeout for new output; available output is returned at once."""
GRACE_SECONDS = 10.0
"""Margin of the container's own timeout over the server's: it only takes effect when the server has died."""
STOP_SECONDS = 5.0
STATE_FILE = "/tmp/.deerflow-shell"
TOO_MUCH = "[stopped: it printed too much; send the output to a file and look at parts of it]"

# $1 command, $2 state file, $3 marker in the environment by which all its descendants are found.
SCRIPT = rf"""
cd {WORKSPACE} 2>/dev/null
[ -r "$2" ] && . "$2" 2>/dev/null
export DEERFLOW_COMMAND=$3
__state=$2
__keep() {{
  {{ set +eux; }} 2>/dev/null
  {{ builtin export -p; builtin printf 'cd -- %q 2>/dev/null\n' "$PWD"; }} >"$__state.new" 2>/dev/null &&
    command mv -f "$__state.new" "$__state" 2>/dev/null
}}
trap __keep EXIT
eval "set --
$1"
"""
SWEEP = r"""
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
    mark: str


class AioShell:
    """Runs commands in one container, one at a time."""

    def __init__(self, api: AioApi) -> None:
        self._api = api
        self._lock = asyncio.Lock()
        self._session: str | None = None
        self._is_old_image = False

    async def run(self, command: str, *, timeout: float, output: OutputBuffer) -> CommandResult:
        """Run `command` to its end; on timeout or cancellation kill it and its descendants."""
        async with self._lock:
            mark = secrets.token_hex(8)
            script = _wrapped(command, mark)
            if not self._is_old_image:
                try:
                    return await self._run(command, script, mark, timeout=timeout, output=output)
                except NoSuchRouteError:
                    self._session, self._is_old_image = None, True
            return await self._run_at_once(command, script, mark, timeout=timeout, output=output)

    async def _run(
        self, command: str, script: str, mark: str, *, timeout: float, output: OutputBuffer
    ) -> CommandResult:
        running = await self._started(script, mark, timeout)
        is_over = False
        try:
            async with asyncio.timeout(timeout):
                exit_code = await self._followed(running, output)
            is_over = exit_code is not None
        except TimeoutError as error:
            await self._stopped(running)
            is_over = True
            raise SandboxTimeoutError(command, timeout, output.text()) from error
        finally:
            if not is_over:  # cancelled, failed, or too much output
                await to_the_end(self._stopped(running))
        if exit_code is None:
            return CommandResult(137, f"{output.text()}\n{TOO_MUCH}")
        return CommandResult(exit_code, output.text())

    async def _started(self, script: str, mark: str, timeout: float) -> _Running:
        """Start the script; replace a lost or broken session once."""
        body = {"command": script, "async_mode": True, "hard_timeout": timeout + GRACE_SECONDS}
        if self._session is not None:
            try:
                return _running(
                    await self._api.call("/v1/bash/exec", {**body, "session_id": self._session}), mark
                )
            except RefusedError as error:
                logger.info("shell session %s is replaced: %s", self._session, error)
                await self._close_session()
        session = await self._api.call("/v1/bash/sessions/create", {"exec_dir": WORKSPACE})
        self._session = str(session.get("session_id") or "")
        return _running(await self._api.call("/v1/bash/exec", {**body, "session_id": self._session}), mark)

    async def _followed(self, running: _Running, output: OutputBuffer) -> int | None:
        """Read the output until the command ends and return its exit code; None when it printed too much."""
        offsets: dict[str, Any] = {"offset": 0, "stderr_offset": 0}
        wait = True
        while True:
            body = {"session_id": running.session, "command_id": running.command_id, **offsets}
            body |= {"wait": wait, "wait_timeout": POLL_SECONDS}
            answer = await self._api.call("/v1/bash/output", body, seconds=POLL_SECONDS + GRACE_SECONDS)
            has_news = _fed(answer, output)
            offsets = {key: answer.get(key) or offsets[key] for key in offsets}
            if output.is_too_much:
                return None
            status = (answer.get("command") or {}).get("status")
            if status not in ("pending", "running"):
                if not has_news:
                    return _exit_code(answer.get("command") or {})
                wait = False  # it has ended: fetch the remaining output

    async def _stopped(self, running: _Running) -> None:
        """Kill the command and its descendants, and close the session."""
        await self._api.tidy("/v1/bash/kill", {"session_id": running.session, "signal": "SIGKILL"})
        await self._swept(running.mark)

    async def _swept(self, mark: str) -> None:
        with suppress(SandboxError):
            await self._api.aside(f"bash -c {shlex.quote(SWEEP)} sweep {mark}", seconds=STOP_SECONDS)
        await self._close_session()

    async def _close_session(self) -> None:
        session, self._session = self._session, None
        if session and self._is_old_image:
            await self._api.tidy(f"/v1/shell/sessions/{quote(session, safe='')}", method="DELETE")
        elif session:
            await self._api.tidy(f"/v1/bash/sessions/{quote(session, safe='')}/close")

    async def _run_at_once(
        self, command: str, script: str, mark: str, *, timeout: float, output: OutputBuffer
    ) -> CommandResult:
        """Run a command on an image without `/v1/bash`: its output arrives only at its end."""
        body = {"command": script, "async_mode": False, "timeout": timeout, "truncate": False}
        body |= {"exec_dir": WORKSPACE, "no_change_timeout": int(timeout + GRACE_SECONDS)}
        is_over = False
        try:
            answer = await self._answered(body, seconds=timeout + GRACE_SECONDS)
            is_over = answer.get("status") == "completed"
        finally:
            if not is_over:
                await to_the_end(self._swept(mark))
        output.feed(str(answer.get("output") or "").encode("utf-8", "replace"))
        if not is_over:
            raise SandboxTimeoutError(command, timeout, output.text())
        return CommandResult(_exit_code(answer), output.text())

    async def _answered(self, body: Mapping[str, Any], *, seconds: float) -> Mapping[str, Any]:
        """Execute in a `/v1/shell` session; replace a broken one once."""
        path = "/v1/shell/exec"
        if self._session is not None:
            try:
                return await self._api.call(path, {**body, "id": self._session}, seconds=seconds)
            except RefusedError as error:
                logger.info("shell session %s is replaced: %s", self._session, error)
                await self._close_session()
        answer = await self._api.call(path, body, seconds=seconds)
        self._session = str(answer.get("session_id") or "") or None
        return answer


def _wrapped(command: str, mark: str) -> str:
    words = ("bash", "--noprofile", "--norc", "-c", SCRIPT, "bash", command, STATE_FILE, mark)
    return f"{shlex.join(words)} </dev/null 2>&1"


def _running(answer: Mapping[str, Any], mark: str) -> _Running:
    session, command_id = answer.get("session_id"), answer.get("command_id")
    if not isinstance(session, str) or not isinstance(command_id, str):
        raise RefusedError("the sandbox container named no command")
    return _Running(session, command_id, mark)


def _fed(answer: Mapping[str, Any], output: OutputBuffer) -> bool:
    pieces = [piece for key in ("stdout", "stderr") if (piece := answer.get(key))]
    for piece in pieces:
        output.feed(str(piece).encode("utf-8", "replace"))
    return bool(pieces)


def _exit_code(command: Mapping[str, Any]) -> int:
    code = command.get("exit_code")
    if isinstance(code, int):
        return code if code >= 0 else 128 - code
    if command.get("status") in ("killed", "timed_out", "terminated", "hard_timeout"):
        return 137
    raise SandboxError("the sandbox's shell broke off without an exit code; run the command again")
