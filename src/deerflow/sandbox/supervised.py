"""Runs each command under a supervisor process: shared by the `local` and `landlock` tiers."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deerflow.config import SandboxSettings
from deerflow.errors import SandboxUnavailableError
from deerflow.sandbox import supervisor
from deerflow.sandbox.base import CommandResult, OutputListener
from deerflow.sandbox.cgroups import ControlGroups
from deerflow.sandbox.limits import rlimits
from deerflow.sandbox.mapping import PathRewriter
from deerflow.sandbox.output import OutputBuffer
from deerflow.sandbox.paths import WORKSPACE, PathTable
from deerflow.sandbox.process import Ending, Launch, run
from deerflow.sandbox.shell import ShellState, StateFile, check_command, result_of, shell_argv
from deerflow.sandbox.slots import CommandSlots
from deerflow.sandbox.usage import ThreadUsage

_SUPERVISOR = Path(supervisor.__file__)
Failed = Callable[[str], Awaitable[SandboxUnavailableError]]
"""Returns the error to raise for a command that could not be started, given its error output."""


async def refused(text: str) -> SandboxUnavailableError:
    """Return an error with the output itself as its message."""
    return SandboxUnavailableError(text)


@dataclass(frozen=True, slots=True)
class Confinement:
    """The tier-specific part of the supervisor's order."""

    uid: int | None = None
    landlock: Mapping[str, Any] | None = None
    seccomp: str | None = None


class SupervisedShell:
    """Runs a thread's commands with persistent shell state; rewrites paths in commands and output."""

    def __init__(
        self,
        table: PathTable,
        settings: SandboxSettings,
        *,
        shell: str,
        environment: Mapping[str, str],
        confinement: Confinement,
        commands: CommandSlots,
        groups: ControlGroups | None = None,
        failed: Failed = refused,
    ) -> None:
        self._settings = settings
        self._shell = shell
        self._environment = dict(environment)
        self._confinement = confinement
        self._rewriter = PathRewriter(table)
        self._home = self._rewriter.host_path(WORKSPACE)
        self._state = ShellState(self._home)
        self._commands = commands
        # without a seccomp filter, harmless programs such as ssh may be non-dumpable and so unreadable
        self._usage = ThreadUsage(
            settings.limits,
            table,
            groups=groups,
            uid=confinement.uid,
            stops_hidden=confinement.seccomp is not None,
        )
        self._failed = failed

    async def execute(
        self, command: str, *, timeout: float | None, on_output: OutputListener | None
    ) -> CommandResult:
        """Run one command; see `Sandbox.execute_command`."""
        seconds = check_command(command, self._settings.bash_command_timeout if timeout is None else timeout)
        output = OutputBuffer(
            max_chars=self._settings.bash_output_max_chars, listener=on_output, mask=self._rewriter.to_virtual
        )
        async with self._commands.hold(self):
            ending = await self._run(command, output, seconds)
        return result_of(command, ending, output, seconds)

    async def _run(self, command: str, output: OutputBuffer, seconds: float) -> Ending:
        with StateFile() as state, self._usage.group() as groups:
            launch = self._launch(self._rewriter.to_host(command), state, groups)
            try:
                ending = await run(launch, output, timeout=seconds)
            finally:
                os.close(launch.pass_fds[0])
            if not state.has_begun and not ending.timed_out and not ending.stopped:
                raise await self._failed(output.text().strip() or "the command could not be started")
            self._state = state.read(self._state, self._environment)
        return ending

    def _launch(self, command: str, state: StateFile, groups: Sequence[Path]) -> Launch:
        limits = self._settings.limits
        order = {
            "parent": os.getpid(),
            "argv": shell_argv(self._shell, command, self._state, self._home, state),
            "cwd": self._home,
            "env": {**self._environment, **self._state.exports},
            "uid": self._confinement.uid,
            "landlock": self._confinement.landlock,
            "seccomp": self._confinement.seccomp,
            "groups": [str(folder) for folder in groups],
            "rlimits": rlimits(limits),
            "max_processes": limits.max_processes,
        }
        reader = _as_file(json.dumps(order).encode())
        return Launch(
            argv=(sys.executable, "-I", "-S", str(_SUPERVISOR), str(reader)),
            env={},
            kill=_stop,
            pass_fds=(reader, state.fd),
            watch=self._usage.watch,
        )


def _as_file(data: bytes) -> int:
    """Return the read end of a pipe that delivers `data`."""
    reader, writer = os.pipe()
    # an order may exceed the pipe's buffer, so the event loop writes it while the supervisor starts
    os.set_blocking(writer, False)
    loop = asyncio.get_running_loop()
    rest = memoryview(data)

    def feed() -> None:
        nonlocal rest
        try:
            while rest:
                rest = rest[os.write(writer, rest) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            pass
        loop.remove_writer(writer)
        os.close(writer)

    loop.add_writer(writer, feed)
    return reader


def _stop(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
