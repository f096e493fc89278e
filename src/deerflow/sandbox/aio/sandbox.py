"""A thread's sandbox in a container: files on this host, commands in there."""

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
    """The way into a container."""

    shell: AioShell
    mirror: Mirror | None
    """None where the folders are mounted."""


Enter = Callable[[], Awaitable[Entry]]
Lost = Callable[[], Awaitable[None]]


class AioSandbox(HostedSandbox):
    """Runs commands in a container that starts with the first of them.

    The container has the thread's folders as mounts, or as a mirror that is brought up to date around
    each command. So file operations stay on this host: they need no container and follow no link out.

    Args:
        enter: Finds or starts the container.
        lost: Told when the container went away, so that the next command gets a new one.
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
    """Run a command between two trips; one that timed out has left its files too."""
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
    """Bring the files; a failure is told beside the command's output, which must not be lost for it."""
    try:
        return await mirror.pull()
    except SandboxError as error:
        return f"\n[{error}]"
