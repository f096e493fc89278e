"""A thread's sandbox in a container: files on this host, commands in there."""

import asyncio
from collections.abc import Awaitable, Callable

from typing_extensions import override

from deerflow.errors import SandboxUnavailableError
from deerflow.sandbox.aio.api import ContainerGoneError
from deerflow.sandbox.aio.shell import AioShell
from deerflow.sandbox.base import CommandResult, OutputListener
from deerflow.sandbox.files import ThreadFiles
from deerflow.sandbox.hosted import HostedSandbox
from deerflow.sandbox.output import OutputBuffer
from deerflow.sandbox.shell import check_command

OpenShell = Callable[[], Awaitable[AioShell]]
Lost = Callable[[], Awaitable[None]]


class AioSandbox(HostedSandbox):
    """Runs commands in a container that starts with the first of them.

    The container has the thread's folders as mounts, so file operations go to the host's side of them:
    they need no container and follow no link out.

    Args:
        open_shell: Finds or starts the container.
        lost: Told when the container went away, so that the next command gets a new one.
    """

    def __init__(
        self,
        files: ThreadFiles,
        *,
        open_shell: OpenShell,
        lost: Lost,
        refusal: str | None,
        default_timeout: float,
        max_output_chars: int,
    ) -> None:
        super().__init__(files)
        self._open_shell = open_shell
        self._lost = lost
        self._refusal = refusal
        self._default_timeout = default_timeout
        self._max_output_chars = max_output_chars
        self._opening = asyncio.Lock()
        self._shell: AioShell | None = None

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
        shell = await self._opened()
        output = OutputBuffer(max_chars=self._max_output_chars, listener=on_output)
        try:
            return await shell.run(command, timeout=seconds, output=output)
        except ContainerGoneError:
            async with self._opening:
                if self._shell is shell:
                    self._shell = None
                    await self._lost()
            raise

    async def _opened(self) -> AioShell:
        async with self._opening:
            if self._shell is None:
                self._shell = await self._open_shell()
            return self._shell
