"""A thread's sandbox with files on this host and commands in a container."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from deerflow.errors import SandboxError, SandboxTimeoutError, SandboxUnavailableError
from deerflow.sandbox.aio.api import ContainerGoneError
from deerflow.sandbox.aio.mirror import Mirror
from deerflow.sandbox.aio.shell import AioShell
from deerflow.sandbox.base import CommandResult, OutputListener
from deerflow.sandbox.files import ThreadFiles
from deerflow.sandbox.hosted import HostedSandbox
from deerflow.sandbox.output import OutputBuffer
from deerflow.sandbox.shell import check_command


@dataclass(frozen=True, slots=True)
class Entry:
    """A container's shell and its file mirror."""

    shell: AioShell
    mirror: Mirror | None
    """None when the container mounts the thread's folders."""


Enter = Callable[[], Awaitable[Entry]]
Lost = Callable[[], Awaitable[None]]


class AioSandbox(HostedSandbox):
    """Runs commands in a container that starts with the first command.

    The container mounts the thread's folders, or has a mirror of them that is synchronized before and after
    each command. So file operations stay on this host: they need no container and follow no link out.

    Args:
        enter: Finds or starts the container.
        lost: Called when the container does not respond, so that the next command gets a new one.
    """

    def __init__(
        self,
        files: ThreadFiles,
        *,
        enter: Enter,
        lost: Lost,
        refusal: str | None,
        default_timeout: float,
        max_output_chars: int,
    ) -> None:
        super().__init__(files)
        self._enter = enter
        self._lost = lost
        self._refusal = refusal
        self._default_timeout = default_timeout
        self._max_output_chars = max_output_chars
        self._entering = asyncio.Lock()
        self._mirroring = asyncio.Lock()
        self._entry: Entry | None = None

    @property
    @override
    def refusal(self) -> str | None:
        return self._refusal

    @override
    async def execute_command(
        self, command: str, *, timeout: float | None = None, on_output: OutputListener | None = None
    ) -> CommandResult:
        if self._refusal is not None:
            raise SandboxUnavailableError(self._refusal)
        seconds = check_command(command, self._default_timeout if timeout is None else timeout)
        entry = await self._entered()
        output = OutputBuffer(max_chars=self._max_output_chars, listener=on_output)
        try:
            if entry.mirror is None:
                return await entry.shell.run(command, timeout=seconds, output=output)
            async with self._mirroring:
                return await _mirrored(entry.mirror, entry.shell.run(command, timeout=seconds, output=output))
        except ContainerGoneError:
            async with self._entering:
                if self._entry is entry:
                    self._entry = None
                    await self._lost()
            raise

    async def _entered(self) -> Entry:
        async with self._entering:
            if self._entry is None:
                self._entry = await self._enter()
            return self._entry


async def _mirrored(mirror: Mirror, running: Coroutine[Any, Any, CommandResult]) -> CommandResult:
    """Run a command between push and pull; also pull after a timeout."""
    try:
        await mirror.push()
    except BaseException:
        running.close()
        raise
    try:
        result = await running
    except SandboxTimeoutError:
        await _note_of(mirror)
        raise
    return CommandResult(result.exit_code, result.output + await _note_of(mirror))


async def _note_of(mirror: Mirror) -> str:
    """Pull the files; return a failure as a note, so that the command's output is not lost."""
    try:
        return await mirror.pull()
    except SandboxError as error:
        return f"\n[{error}]"
