"""Confines commands with Landlock and a seccomp filter, for systems that forbid namespaces.

Weaker than `isolated`: the names of outside paths remain visible (they cannot be opened), there is no
network at all, and virtual paths are rewritten instead of mounted.
"""

import base64
import ctypes
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from deerflow.config import SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import SandboxTimeoutError, SandboxUnavailableError
from deerflow.sandbox import seccomp
from deerflow.sandbox.base import CommandResult, OutputListener, Probe, SelfTest
from deerflow.sandbox.bubblewrap import SYSTEM_PATH, VISIBLE_IN_ETC
from deerflow.sandbox.cgroups import ControlGroups
from deerflow.sandbox.files import ThreadFiles
from deerflow.sandbox.hosted import HostedSandbox
from deerflow.sandbox.paths import (
    PathMapping,
    PathTable,
    SkillMounts,
    no_skills,
    shell_paths,
    temporary_folder,
    thread_paths,
)
from deerflow.sandbox.pool import CommandSlots
from deerflow.sandbox.selftest import (
    LANDLOCK_PROBES,
    PROBE_SECONDS,
    TestedSandboxProvider,
    daemon_name,
    diagnose,
    evaluate,
)
from deerflow.sandbox.supervised import Confinement, StartError, SupervisedShell
from deerflow.sandbox.users import prepare_folders, sandbox_uid, scratch_folders, unreachable

NEEDED_ABI = 6
"""The first ABI version that restricts signals; without it a command could kill the server."""
SHELL = "/bin/bash"

_CREATE_RULESET, _GET_VERSION = 444, 1
_EXECUTE, _WRITE, _READ, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_ALL_FILE_RIGHTS = (1 << 16) - 1
_ALL_TCP, _ALL_SCOPES = 0b11, 0b11
_RULESET_BYTES = 24

_READABLE = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def landlock_abi() -> int:
    """Return this kernel's Landlock ABI version; 0 for none."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    version: int = libc.syscall(_CREATE_RULESET, None, 0, _GET_VERSION)
    return max(0, version)


def ruleset(table: PathTable) -> dict[str, Any]:
    """Return a thread's rules in the supervisor's format: every path not listed is refused."""
    paths: list[tuple[str, int]] = [(path, _EXECUTE | _READ | _READ_DIR) for path in _READABLE]
    for name in VISIBLE_IN_ETC:  # the kernel rejects a rule with folder rights for a file
        paths.append((f"/etc/{name}", _READ | (_READ_DIR if Path("/etc", name).is_dir() else 0)))
    paths += [(path, _READ | _WRITE) for path in _DEVICES]
    for mapping in table.mappings:
        rights = _EXECUTE | _READ | _READ_DIR if mapping.read_only else _ALL_FILE_RIGHTS & ~_IOCTL
        paths.append((str(mapping.host), rights))
    paths = [(path, rights) for path, rights in paths if Path(path).exists()]
    sizes = {"fs": _ALL_FILE_RIGHTS, "net": _ALL_TCP, "scope": _ALL_SCOPES, "size": _RULESET_BYTES}
    return {**sizes, "paths": paths}


class LandlockSandbox(HostedSandbox):
    """A thread's folders on this host, and a shell that Landlock confines to them and to system programs."""

    def __init__(
        self, files: ThreadFiles, folders: ThreadFolders, provider: "LandlockSandboxProvider"
    ) -> None:
        super().__init__(files, partial(prepare_folders, folders, provider.uid))
        self._folders = folders
        self._provider = provider

    @cached_property
    def _shell(self) -> SupervisedShell:
        provider = self._provider
        return provider.shell(
            self._folders, self.files.table, provider.commands, start_error=provider.start_error
        )

    @cached_property
    def _closed(self) -> str:
        """The folders that the commands' user cannot access."""
        return ", ".join(found.virtual for found in unreachable(self.files.table, self._provider.uid))

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
        if self._closed:
            raise SandboxUnavailableError(diagnose(f"source path {self._closed}").refusal or "")
        return await self._shell.execute(
            command, timeout=timeout, on_output=on_output, environment=environment
        )


class LandlockSandboxProvider(TestedSandboxProvider):
    """Provides `LandlockSandbox`es after a passed self-test."""

    tier = "landlock"

    def __init__(self, settings: SandboxSettings, *, skills: SkillMounts = no_skills) -> None:
        super().__init__(settings, skills=skills)
        self.uid = sandbox_uid()
        self._groups = ControlGroups(settings.limits)
        program = seccomp.build_filter((), has_namespaces=False) if seccomp.is_supported() else b""
        self._filter = base64.b64encode(program).decode()

    @override
    def create(self, folders: ThreadFolders, skills: Sequence[PathMapping] = ()) -> LandlockSandbox:
        table = thread_paths(folders, skills=skills, mounts=self._settings.mounts)
        return LandlockSandbox(ThreadFiles(table, owner=self.uid), folders, self)

    def shell(
        self,
        folders: ThreadFolders,
        table: PathTable,
        commands: CommandSlots,
        *,
        start_error: StartError | None = None,
    ) -> SupervisedShell:
        """Return the shell of a thread, whose folders exist."""
        table = shell_paths(folders, table)
        environment = {
            "PATH": SYSTEM_PATH,
            "HOME": str(folders.workspace),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "TMPDIR": str(temporary_folder(folders)),
            "GIT_CONFIG_NOSYSTEM": "1",  # git fails on a configuration file that it may not open
            **self._settings.environment,
        }
        return SupervisedShell(
            table,
            self._settings,
            shell=SHELL,
            environment=environment,
            confinement=Confinement(uid=self.uid, landlock=ruleset(table), seccomp=self._filter),
            commands=commands,
            groups=self._groups,
            start_error=start_error,
        )

    @override
    async def aclose(self) -> None:
        await super().aclose()
        await self._groups.aclose()

    @override
    async def probe(self) -> SelfTest:
        abi = landlock_abi()
        if abi < NEEDED_ABI or not seccomp.is_supported():
            reason = f"this kernel has Landlock version {abi}, and {NEEDED_ABI} is needed (Linux 6.12)"
            fix = "use a newer kernel, or `sandbox.use: isolated` or `sandbox.use: aio`"
            return SelfTest(False, (Probe("landlock", False, str(abi)),), reason, fix)
        daemon = daemon_name()
        with scratch_folders(self.uid) as folders:
            canary = folders.root / "canary.txt"
            canary.write_text("canary")
            canary.chmod(0o666)
            # a separate slot: the command that holds one may be waiting for this test
            shell = self.shell(folders, thread_paths(folders), CommandSlots(limit=1, per_thread=1))
            command = f"CANARY={canary} SERVER={os.getpid()} DAEMON={daemon}\n{LANDLOCK_PROBES}"
            try:
                result = await shell.execute(command, timeout=PROBE_SECONDS, on_output=None)
            except SandboxTimeoutError as error:
                return SelfTest(False, (Probe("start", False, error.output[:300]),), "its probes did not end")
        return await evaluate(result.output, daemon, needed=("finished",))
