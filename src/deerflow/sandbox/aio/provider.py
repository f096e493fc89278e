"""Provides container sandboxes: kept warm between runs, rediscovered after a restart, limited in number."""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

from typing_extensions import override

from deerflow.config import SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import DeerFlowError
from deerflow.sandbox.aio.backend import IMAGE_USER, ContainerBackend, ContainerWish, container_id, owner_of
from deerflow.sandbox.aio.claims import Claims, default_folder
from deerflow.sandbox.aio.local import LocalContainerBackend, resolved_environment
from deerflow.sandbox.aio.mirror import Mirror
from deerflow.sandbox.aio.pool import Pool, Slot
from deerflow.sandbox.aio.remote import RemoteSandboxBackend
from deerflow.sandbox.aio.sandbox import AioSandbox, Entry
from deerflow.sandbox.base import Sandbox, SandboxProvider
from deerflow.sandbox.files import ThreadFiles
from deerflow.sandbox.paths import thread_paths
from deerflow.sandbox.selftest import Probe, SelfTest
from deerflow.sandbox.users import close_to_others

logger = logging.getLogger(__name__)

MARKER = "container"
"""Marker file of a thread for which a container was started; it is deleted with the thread."""


class AioSandboxProvider(SandboxProvider):
    """Provides each thread a container, from Docker or Podman on this host or a Kubernetes provisioner.

    Args:
        skills_root: Folder of the skills, mounted read-only.
        state: Folder of the lock files shared by the processes of this host; by default one per user.
        backend: Starts the containers; by default the one that the settings select.
    """

    tier = "aio"

    def __init__(
        self,
        settings: SandboxSettings,
        *,
        skills_root: Path | None = None,
        state: Path | None = None,
        backend: ContainerBackend | None = None,
    ) -> None:
        self._settings = settings
        self._skills_root = skills_root
        self._backend = backend or _backend_of(settings)
        is_here = isinstance(self._backend, LocalContainerBackend)
        self._has_mounts = is_here if settings.thread_data_mounts is None else settings.thread_data_mounts
        self._pool = Pool(self._backend, Claims(state or default_folder()), settings)

    @override
    async def self_test(self) -> SelfTest:
        try:
            await self._backend.running()
        except DeerFlowError as error:
            fix = "start the engine, or choose another sandbox.use"
            return SelfTest(ok=False, probes=(Probe("containers", False),), reason=str(error), fix=fix)
        return SelfTest(ok=True, probes=(Probe("containers", True),))

    @override
    def lend(self, folders: ThreadFolders) -> AbstractAsyncContextManager[Sandbox]:
        return self._lend(folders)

    @asynccontextmanager
    async def _lend(self, folders: ThreadFolders) -> AsyncIterator[Sandbox]:
        folders.create()
        close_to_others(folders)
        table = thread_paths(folders, skills_root=self._skills_root, mounts=self._settings.mounts)
        is_root = os.geteuid() == 0
        _open_to_the_image(folders, is_root=is_root)
        user = owner_of(folders)
        wish = ContainerWish(
            container_id(user, folders.thread_id),
            user_id=user,
            thread_id=folders.thread_id,
            origin=str(folders.root),
            mounts=table.mappings if self._has_mounts else (),
            environment=resolved_environment(self._settings.environment),
        )
        files = ThreadFiles(table, owner=IMAGE_USER if is_root else None)
        marker = folders.root / MARKER
        taken: list[Slot] = []

        async def enter() -> Entry:
            if self._has_mounts and not marker.exists():
                # The thread is new or was recreated: an older container would mount the deleted folders.
                await self._pool.discard(wish.id)
                marker.touch()
            slot = await self._pool.take(wish)
            taken.append(slot)
            return Entry(slot.shell, None if self._has_mounts else Mirror(folders, files, slot.api))

        async def lost() -> None:
            slot = taken.pop()
            await self._pool.drop(slot)

        sandbox = AioSandbox(
            files,
            enter=enter,
            lost=lost,
            refusal=self._backend.refusal,
            default_timeout=self._settings.bash_command_timeout,
            max_output_chars=self._settings.bash_output_max_chars,
        )
        try:
            yield sandbox
        finally:
            for slot in taken:
                self._pool.give_back(slot)

    @override
    async def aclose(self) -> None:
        await self._pool.aclose()
        try:
            await self._backend.aclose()
        except DeerFlowError:
            logger.exception("container backend did not close")


def _backend_of(settings: SandboxSettings) -> ContainerBackend:
    return RemoteSandboxBackend(settings) if settings.provisioner_url else LocalContainerBackend(settings)


def _open_to_the_image(folders: ThreadFolders, *, is_root: bool) -> None:
    """Make the thread's folders writable for the image's user."""
    for folder in (folders.workspace, folders.uploads, folders.outputs):
        with suppress(PermissionError):
            if is_root:
                os.chown(folder, IMAGE_USER, IMAGE_USER)
            elif os.geteuid() != IMAGE_USER:
                folder.chmod(0o777)
