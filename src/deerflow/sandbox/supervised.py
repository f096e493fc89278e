"""Runs each command under a supervisor process: shared by the `local` and `landlock` tiers.

They have no mounts, so virtual paths are rewritten to host paths in commands, and back in their output.
"""

import asyncio
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from deerflow.config import SandboxSettings
from deerflow.errors import SandboxUnavailableError
from deerflow.sandbox import supervisor
from deerflow.sandbox.base import CommandResult, OutputListener
from deerflow.sandbox.cgroups import ControlGroups
from deerflow.sandbox.paths import USER_DATA, WORKSPACE, PathTable
from deerflow.sandbox.pool import CommandSlots
from deerflow.sandbox.process import Ending, Launch, OutputBuffer, run
from deerflow.sandbox.shell import SCRIPT, ShellState, StateFile, check_command, result_of
from deerflow.sandbox.usage import ThreadUsage, rlimits

StartError = Callable[[str], Awaitable[SandboxUnavailableError]]
"""Returns the error to raise for a command that could not be started, given its error output."""


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
        start_error: StartError | None = None,
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
        self._start_error = start_error

    async def execute(
        self,
        command: str,
        *,
        timeout: float | None,
        on_output: OutputListener | None,
        environment: Mapping[str, str] | None = None,
    ) -> CommandResult:
        seconds = check_command(command, self._settings.bash_command_timeout if timeout is None else timeout)
        output = OutputBuffer(
            max_chars=self._settings.bash_output_max_chars, listener=on_output, mask=self._rewriter.to_virtual
        )
        async with self._commands.hold(self):
            ending = await self._run(command, output, seconds, environment or {})
        return result_of(command, ending, output, seconds)

    async def _run(
        self, command: str, output: OutputBuffer, seconds: float, environment: Mapping[str, str]
    ) -> Ending:
        with StateFile() as state, self._usage.group() as group:
            launch = self._launch(self._rewriter.to_host(command), state, group, environment)
            try:
                ending = await run(launch, output, timeout=seconds)
            finally:
                os.close(launch.pass_fds[0])
            if not state.has_begun and not ending.timed_out and not ending.stopped:
                text = output.text().strip() or "the command could not be started"
                raise await self._start_error(text) if self._start_error else SandboxUnavailableError(text)
            self._state = state.read(self._state, self._environment).without(environment)
        return ending

    def _launch(
        self, command: str, state: StateFile, group: Path | None, environment: Mapping[str, str]
    ) -> Launch:
        limits = self._settings.limits
        script = (self._shell, "--noprofile", "--norc", "-c", SCRIPT, "bash")
        order = {
            "parent": os.getpid(),
            "argv": [*script, command, self._state.cwd, self._home, str(state.fd)],
            "cwd": self._home,
            "env": {**self._environment, **self._state.exports, **environment},
            "uid": self._confinement.uid,
            "landlock": self._confinement.landlock,
            "seccomp": self._confinement.seccomp,
            "group": str(group) if group else None,
            "rlimits": rlimits(limits),
            "max_processes": limits.max_processes,
        }
        reader = _pipe_with(json.dumps(order).encode())
        return Launch(
            argv=(sys.executable, "-I", "-S", supervisor.__file__, str(reader)),
            env={},
            kill=_terminate,
            pass_fds=(reader, state.fd),
            watch=self._usage.watch,
        )


def _pipe_with(data: bytes) -> int:
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


def _terminate(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


class PathRewriter:
    """Translates between a thread's virtual paths and host paths."""

    def __init__(self, table: PathTable) -> None:
        hosts = {mapping.virtual: str(mapping.host) for mapping in table.mappings}
        # `ls /mnt/user-data` works when all folders below it share a parent
        parents = {virtual.rpartition("/")[0]: host.rpartition("/")[0] for virtual, host in hosts.items()}
        if USER_DATA in parents:
            hosts.setdefault(USER_DATA, parents[USER_DATA])
        self._hosts = hosts
        self._table = table

    # Compiled on the first command: it costs milliseconds, and most turns run no command.
    @cached_property
    def _in_command(self) -> re.Pattern[str]:
        return _any_of(self._hosts, r"(?<![\w./-])", r"(?=$|[/\s\"'`;|&<>(){}\[\]:,=*?!$])")

    @cached_property
    def _virtual(self) -> dict[str, str]:
        virtual = {host: virtual for virtual, host in self._hosts.items()}
        return virtual | {str(mapping.host.resolve()): mapping.virtual for mapping in self._table.mappings}

    @cached_property
    def _in_output(self) -> re.Pattern[str]:
        return _any_of(self._virtual, "", r"(?![\w-])")

    def to_host(self, command: str) -> str:
        return self._in_command.sub(lambda found: _escape(self._hosts[found.group()]), command)

    def host_path(self, virtual: str) -> str:
        if virtual in self._hosts:
            return self._hosts[virtual]
        return self._in_command.sub(lambda found: self._hosts[found.group()], virtual)

    def to_virtual(self, text: str) -> str:
        """Return output with host paths replaced by virtual paths."""
        return self._in_output.sub(lambda found: self._virtual[found.group()], text)


def _any_of(names: Mapping[str, str], before: str, after: str) -> re.Pattern[str]:
    longest_first = sorted(names, key=len, reverse=True)
    return re.compile(f"{before}(?:{'|'.join(re.escape(name) for name in longest_first)}){after}")


def _escape(path: str) -> str:
    # Quotes would close a quoted string around the path, so special characters are backslash-escaped.
    return path if shlex.quote(path) == path else re.sub(r"([^\w@%+=:,./-])", r"\\\1", path)
