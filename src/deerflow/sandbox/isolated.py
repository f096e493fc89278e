"""Runs each command in a new bubblewrap sandbox: own namespaces, a seccomp filter, resource limits.

A sandbox per command costs some milliseconds and leaves no state that a command could poison for the next
one; the working directory and the exports are passed on as data.
"""

import asyncio
from pathlib import Path

from typing_extensions import override

from deerflow.config import SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import SandboxUnavailableError
from deerflow.sandbox.base import CommandResult, Match, OutputListener
from deerflow.sandbox.bubblewrap import Bubblewrap
from deerflow.sandbox.diagnosis import diagnose
from deerflow.sandbox.files import ThreadFiles
from deerflow.sandbox.grep import GREP_SECONDS, Query
from deerflow.sandbox.hosted import HostedSandbox
from deerflow.sandbox.output import OutputBuffer
from deerflow.sandbox.paths import WORKSPACE, PathTable, Place, shell_paths, thread_paths
from deerflow.sandbox.probing import ProbingSandboxProvider
from deerflow.sandbox.process import Ending
from deerflow.sandbox.ripgrep import RgOutput, find_rg, is_answer, is_quick, rg_argv
from deerflow.sandbox.selftest import PROBES, Probe, SelfTest, daemon_name, is_running, judge, parse_probes
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
from deerflow.sandbox.users import hand_over, scratch_folders

PROBE_SECONDS = 20.0


class IsolatedSandbox(HostedSandbox):
    """A thread's folders on this host, and a shell that sees only these and read-only system files."""

    def __init__(self, files: ThreadFiles, inside: PathTable, provider: "IsolatedSandboxProvider") -> None:
        super().__init__(files)
        self._inside = inside
        self._provider = provider
        self._usage = provider.usage(inside)
        self._state = ShellState(WORKSPACE)

    @property
    @override
    def refusal(self) -> str | None:
        return self._provider.refusal

    @override
    async def execute_command(
        self, command: str, *, timeout: float | None = None, on_output: OutputListener | None = None
    ) -> CommandResult:
        bubblewrap = await self._provider.tested()
        settings = bubblewrap.settings
        seconds = check_command(command, settings.bash_command_timeout if timeout is None else timeout)
        output = OutputBuffer(max_chars=settings.bash_output_max_chars, listener=on_output)
        async with self._provider.commands.hold(self):
            ending = await self._run(bubblewrap, command, output, seconds)
        return result_of(command, ending, output, seconds)

    async def _run(
        self, bubblewrap: Bubblewrap, command: str, output: OutputBuffer, seconds: float
    ) -> Ending:
        """Run a command with the shell state of the last one, and save its state for the next."""
        base = bubblewrap.environment()
        with StateFile() as state, sealed(self._state.packed_exports) as exports:
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
                raise await self._provider.failed(str(error)) from error
            self._state = state.read(self._state, base)
        return ending

    @override
    async def search(self, path: str, query: Query) -> tuple[list[Match], bool]:
        rg = find_rg()
        places = self.files.table.places_below(path)
        if rg is None or len(places) > 1 or self._provider.refusal or not is_quick(query):
            return await super().search(path, query)
        found = await self._ask_ripgrep(rg, places[0], query.checked())
        return await super().search(path, query) if found is None else found

    async def _ask_ripgrep(self, rg: Path, place: Place, query: Query) -> tuple[list[Match], bool] | None:
        """Run ripgrep in a sandbox, where no link can lead out; None means: use the Python search."""
        output = RgOutput(query)
        try:
            bubblewrap = await self._provider.tested()
            async with self._provider.searches.hold(self):
                ending = await bubblewrap.run(
                    self._inside,
                    'cd -- "$1" && shift && exec "$@"',
                    (place.virtual, *rg_argv(rg, query)),
                    output,
                    usage=self._usage,
                    environment=bubblewrap.environment(),
                    timeout=GREP_SECONDS,
                )
        except SandboxUnavailableError:
            return None
        if not is_answer(ending.exit_code, output):
            return None
        return await asyncio.to_thread(output.matches, self.files, place)


class IsolatedSandboxProvider(ProbingSandboxProvider):
    """Provides `IsolatedSandbox`es after a passed self-test."""

    tier = "isolated"

    def __init__(self, settings: SandboxSettings, *, skills_root: Path | None = None) -> None:
        super().__init__(settings, skills_root=skills_root)
        self._bubblewrap = Bubblewrap(settings)

    @property
    def refusal(self) -> str | None:
        """Why commands cannot run, according to the last self-test."""
        return self.gate.refusal

    @override
    def make(self, folders: ThreadFolders) -> IsolatedSandbox:
        uid = self._bubblewrap.uid
        hand_over(folders, uid)
        table = thread_paths(folders, skills_root=self._skills_root, mounts=self._settings.mounts)
        return IsolatedSandbox(ThreadFiles(table, owner=uid), shell_paths(folders, table), self)

    def usage(self, table: PathTable) -> ThreadUsage:
        """Create the usage monitor of a thread's commands."""
        return self._bubblewrap.usage(table)

    async def tested(self) -> Bubblewrap:
        """Return the `Bubblewrap` once its self-test has passed; raise when it has failed."""
        await self.gate.require()
        return self._bubblewrap

    @override
    async def aclose(self) -> None:
        await super().aclose()
        await self._bubblewrap.aclose()

    @override
    async def probe(self) -> SelfTest:
        bubblewrap, daemon = self._bubblewrap, daemon_name()
        output = OutputBuffer(max_chars=0)
        with scratch_folders(bubblewrap.uid) as folders:
            environment = {
                **bubblewrap.environment(),
                "HOST_FOLDER": str(folders.root),
                "PROCESS_LIMIT": str(self._settings.limits.max_processes),
                "DAEMON": daemon,
            }
            ending = await bubblewrap.run(
                thread_paths(folders),
                f"cd {WORKSPACE}\n{PROBES}",
                (),
                output,
                usage=bubblewrap.usage(thread_paths(folders)),
                environment=environment,
                timeout=PROBE_SECONDS,
            )
        text = output.text()
        if "\t" not in text or ending.timed_out:
            found = diagnose(text)
            return SelfTest(False, (Probe("start", False, text[:300]),), found.reason, found.fix)
        is_left = await asyncio.to_thread(is_running, daemon)
        return judge([Probe("start", True), *parse_probes(text), Probe("nothing left running", not is_left)])
