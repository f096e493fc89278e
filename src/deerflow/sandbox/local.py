"""Runs commands on the host with the rights of this process, without isolation. For development."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from typing_extensions import override

from deerflow.config import SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import SandboxUnavailableError
from deerflow.sandbox.base import CommandResult, OutputListener, Probe, SelfTest
from deerflow.sandbox.files import PortableThreadFiles, ThreadFiles
from deerflow.sandbox.hosted import HostedSandbox
from deerflow.sandbox.paths import PathMapping, PathTable, thread_paths
from deerflow.sandbox.pool import CommandSlots, ThreadSandboxProvider
from deerflow.sandbox.supervised import Confinement, SupervisedShell
from deerflow.sandbox.users import close_to_others

INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TZ", "TMPDIR")
"""The only environment variables of this process that commands inherit: others may contain secrets."""

_SAFE_GIT = {
    "core.fsmonitor": "false",
    "safe.bareRepository": "explicit",
    "protocol.ext.allow": "never",
    "core.pager": "cat",
}
"""Git settings that override those of a repository, which is untrusted."""
SAFE_PROGRAMS = {
    "GIT_CONFIG_COUNT": str(len(_SAFE_GIT)),
    **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(_SAFE_GIT)},
    **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(_SAFE_GIT.values())},
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "PAGER": "cat",
    "LESSSECURE": "1",
}
"""Environment that keeps git and pagers from executing commands configured in a folder's files."""

HOST_BASH_OFF = (
    "bash is off: this sandbox ('local') has no isolation, so commands would run on the host itself. "
    "The operator can set `sandbox.use: isolated` (Linux, recommended) or `sandbox.use: aio` (containers), "
    "or accept the risk with `sandbox.allow_host_bash: true` in config.yaml. "
    "The file tools (ls, glob, grep, read_file, write_file, str_replace) work without it."
)
NO_SHELL = (
    "bash is off: no bash was found on this host; the operator can install it. The file tools go on working."
)


class LocalSandbox(HostedSandbox):
    """A thread's folders on this host, and the host's shell if the operator allows it."""

    def __init__(
        self,
        files: ThreadFiles,
        settings: SandboxSettings,
        commands: CommandSlots | None = None,
        create_folders: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(files, create_folders)
        self._settings = settings
        self._commands = commands or CommandSlots.from_settings(settings)
        self._refusal = _refusal(settings)

    @property
    @override
    def refusal(self) -> str | None:
        return self._refusal

    @override
    async def execute_command(
        self,
        command: str,
        *,
        timeout: float | None = None,
        on_output: OutputListener | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> CommandResult:
        if self._refusal:
            raise SandboxUnavailableError(self._refusal)
        return await self._shell.execute(
            command, timeout=timeout, on_output=on_output, environment=environment
        )

    @cached_property
    def _shell(self) -> SupervisedShell:
        """Created with the first command: every run acquires a sandbox, and most run no command."""
        return SupervisedShell(
            self.files.table,
            self._settings,
            shell=_host_bash() or "",
            environment=host_environment(os.environ) | SAFE_PROGRAMS | self._settings.environment,
            confinement=Confinement(),
            commands=self._commands,
        )


class LocalSandboxProvider(ThreadSandboxProvider):
    """Provides `LocalSandbox`es."""

    tier = "local"

    @override
    async def self_test(self) -> SelfTest:
        return self.last_test

    @property
    @override
    def last_test(self) -> SelfTest:
        reason = _refusal(self._settings)
        return SelfTest(reason is None, (Probe("host bash", reason is None),), reason)

    @override
    def create(self, folders: ThreadFolders, skills: Sequence[PathMapping] = ()) -> LocalSandbox:
        def create_folders() -> None:
            folders.create()
            close_to_others(folders)

        table = thread_paths(folders, skills=skills, mounts=self._settings.mounts)
        return LocalSandbox(files_of(table), self._settings, self.commands, create_folders)


def files_of(table: PathTable) -> ThreadFiles:
    """Return the file operations for this system."""
    return ThreadFiles(table) if os.open in os.supports_dir_fd else PortableThreadFiles(table)


def _refusal(settings: SandboxSettings) -> str | None:
    if not settings.allow_host_bash:
        return HOST_BASH_OFF
    return None if _host_bash() else NO_SHELL


def _host_bash() -> str | None:
    return shutil.which("bash") if os.name == "posix" else None


def host_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of this process's environment that a command on the host inherits."""
    return {name: environment[name] for name in INHERITED if name in environment}
