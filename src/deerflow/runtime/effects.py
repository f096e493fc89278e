"""What stands between a run's tools and the world: files are kept first, and no call runs twice unasked."""

import asyncio

from deerflow.config import RunSettings
from deerflow.domain import RunRecord
from deerflow.errors import StorageError
from deerflow.runtime.snapshots import SnapshotLimits, SnapshotStore
from deerflow.storage import EffectLog, EffectState


class RunEffects:
    """The effects of one run, as its tools announce them."""

    def __init__(
        self, *, log: EffectLog, run: RunRecord, files: SnapshotStore, settings: RunSettings
    ) -> None:
        self._log = log
        self._run = run
        self._files = files
        self._settings = settings
        self._keeping: asyncio.Task[None] | None = None

    async def start(self, call: bytes) -> EffectState | None:
        """Return once a call may do its work; with what is known of it from an attempt that died."""
        if self._keeping is None or _has_failed(self._keeping):
            self._keeping = asyncio.create_task(self._keep())
        await asyncio.shield(self._keeping)  # others wait for the same snapshot
        return await self._log.start(self._run.id, attempt=self._run.attempt, call=call)

    def finish(self, call: bytes) -> None:
        """Note that a call is done."""
        self._log.finish(self._run.id, attempt=self._run.attempt, call=call)

    async def aclose(self) -> None:
        """Wait for a snapshot that is being taken: what comes next may change the files."""
        if self._keeping is not None:
            await asyncio.gather(self._keeping, return_exceptions=True)

    async def _keep(self) -> None:
        limits = SnapshotLimits(self._settings.snapshot_max_bytes, kept=self._settings.snapshots_kept)
        try:
            await asyncio.to_thread(self._files.keep, self._run.id, limits)
        except OSError as error:
            # Nothing is changed before: a rollback would not know of it.
            raise StorageError(
                "the thread's files could not be kept for a rollback, so nothing may change them: "
                f"{error.strerror}; free some disk space, or make the thread's folder writable"
            ) from error


def _has_failed(keeping: asyncio.Task[None]) -> bool:
    return keeping.done() and (keeping.cancelled() or keeping.exception() is not None)
