"""Provides container sandboxes: kept warm between runs, rediscovered after a restart, limited in number."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from typing_extensions import override

from deerflow.config import SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import DeerFlowError, SandboxError, SandboxTimeoutError, SandboxUnavailableError
from deerflow.sandbox.aio.api import ContainerGoneError
from deerflow.sandbox.aio.backends import (
    IMAGE_USER,
    ContainerBackend,
    ContainerSpec,
    LocalContainerBackend,
    RemoteSandboxBackend,
)
from deerflow.sandbox.aio.mirror import Mirror
from deerflow.sandbox.aio.pool import ContainerLocks, Pool, PooledContainer, default_folder
from deerflow.sandbox.base import (
    CommandResult,
    OutputListener,
    Probe,
    Sandbox,
    SandboxProvider,
    SelfTest,
)
from deerflow.sandbox.files import ThreadFiles
from deerflow.sandbox.hosted import HostedSandbox
from deerflow.sandbox.paths import SkillMounts, no_skills, thread_paths
from deerflow.sandbox.process import OutputBuffer
from deerflow.sandbox.shell import check_command
from deerflow.sandbox.users import close_to_others

logger = logging.getLogger(__name__)

MARKER = "container"
"""Names the paths that a thread's container mounts; the file is deleted with the thread."""


class AioSandboxProvider(SandboxProvider):
    """Provides each thread a container, from Docker or Podman on this host or a Kubernetes provisioner.

    Args:
        skills: Returns the folders of skills, mounted read-only.
        state: Folder of the lock files shared by the processes of this host; by default one per user.
        backend: Starts the containers; by default the one that the settings select.
    """

    tier = "aio"

    def __init__(
        self,
        settings: SandboxSettings,
        *,
        skills: SkillMounts = no_skills,
        state: Path | None = None,
        backend: ContainerBackend | None = None,
    ) -> None:
        self._settings = settings
        self._skills = skills
        make = RemoteSandboxBackend if settings.provisioner_url else LocalContainerBackend
        self._backend = backend or make(settings)
        is_local = isinstance(self._backend, LocalContainerBackend)
        self._has_mounts = is_local if settings.thread_data_mounts is None else settings.thread_data_mounts
        self._pool = Pool(self._backend, ContainerLocks(state or default_folder()), settings)

    @override
    async def self_test(self) -> SelfTest:
        try:
            await self._backend.running()
        except DeerFlowError as error:
            fix = "start the engine, or choose another sandbox.use"
            return SelfTest(ok=False, probes=(Probe("containers", False),), reason=str(error), fix=fix)
        return SelfTest(ok=True, probes=(Probe("containers", True),))

    @override
    @asynccontextmanager
    async def acquire(self, folders: ThreadFolders) -> AsyncIterator[Sandbox]:
        folders.create()
        close_to_others(folders)
        table = thread_paths(folders, skills=self._skills(folders), mounts=self._settings.mounts)
        is_root = os.geteuid() == 0
        _make_writable_for_image(folders, is_root=is_root)
        mounts = table.mappings if self._has_mounts else ()
        spec = ContainerSpec.of(folders, mounts, self._settings.environment)
        files = ThreadFiles(table, owner=IMAGE_USER if is_root else None)
        sandbox = AioSandbox(
            files, folders, spec, self._pool, settings=self._settings, refusal=self._backend.refusal
        )
        try:
            yield sandbox
        finally:
            sandbox.release()

    @override
    async def aclose(self) -> None:
        await self._pool.aclose()
        try:
            await self._backend.aclose()
        except DeerFlowError:
            logger.exception("container backend did not close")


def _make_writable_for_image(folders: ThreadFolders, *, is_root: bool) -> None:
    for folder in (folders.workspace, folders.uploads, folders.outputs):
        with suppress(PermissionError):
            if is_root:
                os.chown(folder, IMAGE_USER, IMAGE_USER)
            elif os.geteuid() != IMAGE_USER:
                folder.chmod(0o777)


class AioSandbox(HostedSandbox):
    """Runs commands in a container that starts with the first command.

    The container mounts the thread's folders, or has a mirror of them that is synchronized before and after
    each command. So file operations stay on this host: they need no container and follow no link out.
    """

    def __init__(
        self,
        files: ThreadFiles,
        folders: ThreadFolders,
        spec: ContainerSpec,
        pool: Pool,
        *,
        settings: SandboxSettings,
        refusal: str | None,
    ) -> None:
        super().__init__(files)
        self._folders = folders
        self._spec = spec
        self._pool = pool
        self._settings = settings
        self._refusal = refusal
        self._connecting = asyncio.Lock()
        self._mirroring = asyncio.Lock()
        self._container: PooledContainer | None = None
        self._mirror: Mirror | None = None

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
        if self._refusal is not None:
            raise SandboxUnavailableError(self._refusal)
        settings = self._settings
        seconds = check_command(command, settings.bash_command_timeout if timeout is None else timeout)
        container, mirror = await self._connect()
        output = OutputBuffer(max_chars=settings.bash_output_max_chars, listener=on_output)
        try:
            if mirror is None:
                return await container.shell.run(
                    command, timeout=seconds, output=output, environment=environment
                )
            async with self._mirroring:
                return await _run_mirrored(container, mirror, command, output, seconds, environment)
        except ContainerGoneError:
            async with self._connecting:
                if self._container is container:  # the next command gets a new one
                    self._container = None
                    await self._pool.drop(container)
            raise

    async def _connect(self) -> tuple[PooledContainer, Mirror | None]:
        """Return the container, found or started, and its mirror if it mounts no folders."""
        async with self._connecting:
            if self._container is None:
                marker = self._folders.root / MARKER
                mounted = "".join(f"{mount.virtual}\n" for mount in self._spec.mounts)
                if mounted and (not marker.exists() or marker.read_text() != mounted):
                    # The thread is new or was recreated, or it has new folders of skills: an older container
                    # would mount the deleted folders, or not the new ones.
                    await self._pool.discard(self._spec.id)
                    marker.write_text(mounted)
                self._container = await self._pool.acquire(self._spec)
                if not self._spec.mounts:
                    self._mirror = Mirror(self._folders, self.files, self._container.api)
            return self._container, self._mirror

    def release(self) -> None:
        if self._container is not None:
            self._pool.release(self._container)


async def _run_mirrored(
    container: PooledContainer,
    mirror: Mirror,
    command: str,
    output: OutputBuffer,
    seconds: float,
    environment: Mapping[str, str] | None,
) -> CommandResult:
    """Run a command between push and pull; also pull after a timeout."""
    await mirror.push()
    try:
        result = await container.shell.run(command, timeout=seconds, output=output, environment=environment)
    except SandboxTimeoutError:
        await _pull(mirror)
        raise
    return CommandResult(result.exit_code, result.output + await _pull(mirror))


async def _pull(mirror: Mirror) -> str:
    """Pull the files; return a failure as a note, so that the command's output is not lost."""
    try:
        return await mirror.pull()
    except SandboxError as error:
        return f"\n[{error}]"
