"""Runs each command in a new bubblewrap sandbox: own namespaces, a seccomp filter, resource limits.

A sandbox per command costs some milliseconds and leaves no state that a command could poison for the next
one; the working directory and the exports are passed on as data.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path

from typing_extensions import override

from deerflow.config import SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import SandboxUnavailableError
from deerflow.sandbox.base import CommandResult, Match, OutputListener, SelfTest
from deerflow.sandbox.bubblewrap import Bubblewrap
from deerflow.sandbox.files import ThreadFiles
from deerflow.sandbox.grep import GREP_SECONDS, Query, RgOutput, find_rg, rg_argv
from deerflow.sandbox.hosted import HostedSandbox
from deerflow.sandbox.paths import (
    WORKSPACE,
    PathMapping,
    PathTable,
    ResolvedPath,
    SkillMounts,
    no_skills,
    shell_paths,
    thread_paths,
)
from deerflow.sandbox.process import Ending, OutputBuffer
from deerflow.sandbox.selftest import (
    PROBE_SECONDS,
    PROBES,
    TestedSandboxProvider,
    daemon_name,
    diagnose,
    evaluate,
)
from deerflow.sandbox.shell import (
    EXPORTS,
    SCRIPT,
    ShellState,
    StateFile,
    check_command,
    result_of,
    sealed,
)
from deerflow.sandbox.usage import ThreadUsage
from deerflow.sandbox.users import prepare_folders, scratch_folders


class IsolatedSandbox(HostedSandbox):
    """A thread's folders on this host, and a shell that sees only these and read-only system files."""

    def __init__(
        self,
        files: ThreadFiles,
        inside: PathTable,
        provider: "IsolatedSandboxProvider",
        create_folders: Callable[[], None],
    ) -> None:
        super().__init__(files, create_folders)
        self._inside = inside
        self._provider = provider
        self._state = ShellState(WORKSPACE)

    @cached_property
    def _usage(self) -> ThreadUsage:
        return self._provider.bubblewrap.usage(self._inside)

    @property
    @override
    def refusal(self) -> str | None:
        return self._provider.refusal

    @override
    async def execute_command(
        self,
        command: str,
        *,
        timeout: float | None = None,
        on_output: OutputListener | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> CommandResult:
        await self._provider.require_passed()
        self.prepare()
        settings = self._provider.bubblewrap.settings
        seconds = check_command(command, settings.bash_command_timeout if timeout is None else timeout)
        output = OutputBuffer(max_chars=settings.bash_output_max_chars, listener=on_output)
        async with self._provider.commands.hold(self):
            ending = await self._run(command, output, seconds, environment or {})
        return result_of(command, ending, output, seconds)

    async def _run(
        self, command: str, output: OutputBuffer, seconds: float, environment: Mapping[str, str]
    ) -> Ending:
        """Run a command with the shell state of the last one, and save its state for the next."""
        bubblewrap = self._provider.bubblewrap
        base = bubblewrap.environment()
        with StateFile() as state, sealed(self._state.packed_exports(environment)) as exports:
            try:
                ending = await bubblewrap.run(
                    self._inside,
                    EXPORTS + SCRIPT,
                    (command, self._state.cwd, WORKSPACE, str(state.fd), str(exports)),
                    output,
                    usage=self._usage,
                    environment=base,
                    timeout=seconds,
                    pass_fds=(state.fd, exports),
                )
            except SandboxUnavailableError as error:
                raise await self._provider.start_error(str(error)) from error
            self._state = state.read(self._state, base).without(environment)
        return ending

    @override
    async def search(self, path: str, query: Query) -> tuple[list[Match], bool]:
        rg = find_rg()
        roots = self.files.table.resolve_folders(path)
        found = None
        if rg and len(roots) == 1 and not self.refusal and query.suits_ripgrep:
            found = await self._ripgrep(rg, roots[0], query.checked())
        return await super().search(path, query) if found is None else found

    async def _ripgrep(self, rg: Path, root: ResolvedPath, query: Query) -> tuple[list[Match], bool] | None:
        """Run ripgrep in a sandbox, where no link can lead out; None means: use the Python search."""
        output = RgOutput(query)
        bubblewrap = self._provider.bubblewrap
        try:
            await self._provider.require_passed()
            async with self._provider.searches.hold(self):
                ending = await bubblewrap.run(
                    self._inside,
                    'cd -- "$1" && shift && exec "$@"',
                    (root.virtual, *rg_argv(rg, query)),
                    output,
                    usage=self._usage,
                    environment=bubblewrap.environment(),
                    timeout=GREP_SECONDS,
                )
        except SandboxUnavailableError:
            return None
        if not output.is_complete(ending.exit_code):
            return None
        return await asyncio.to_thread(output.matches, self.files, root)


class IsolatedSandboxProvider(TestedSandboxProvider):
    """Provides `IsolatedSandbox`es after a passed self-test."""

    tier = "isolated"

    def __init__(self, settings: SandboxSettings, *, skills: SkillMounts = no_skills) -> None:
        super().__init__(settings, skills=skills)
        self.bubblewrap = Bubblewrap(settings)

    @override
    def create(self, folders: ThreadFolders, skills: Sequence[PathMapping] = ()) -> IsolatedSandbox:
        uid = self.bubblewrap.uid
        table = thread_paths(folders, skills=skills, mounts=self._settings.mounts)
        create_folders = partial(prepare_folders, folders, uid)
        inside = shell_paths(folders, table)
        return IsolatedSandbox(ThreadFiles(table, owner=uid), inside, self, create_folders)

    @override
    async def aclose(self) -> None:
        await super().aclose()
        await self.bubblewrap.aclose()

    @override
    async def probe(self) -> SelfTest:
        daemon, output = daemon_name(), OutputBuffer(max_chars=0)
        with scratch_folders(self.bubblewrap.uid) as folders:
            table = thread_paths(folders)
            environment = {
                **self.bubblewrap.environment(),
                "HOST_FOLDER": str(folders.root),
                "PROCESS_LIMIT": str(self._settings.limits.max_processes),
                "DAEMON": daemon,
            }
            ending = await self.bubblewrap.run(
                table,
                f"cd {WORKSPACE}\n{PROBES}",
                (),
                output,
                usage=self.bubblewrap.usage(table),
                environment=environment,
                timeout=PROBE_SECONDS,
            )
        text = output.text()
        return diagnose(text) if "\t" not in text or ending.timed_out else await evaluate(text, daemon)
