"""Guards a run's tool effects: files are snapshotted first, and no call is repeated without asking."""

import asyncio

from deerflow.config import RunSettings
from deerflow.domain import RunRecord
from deerflow.errors import StorageError
from deerflow.files.snapshots import SnapshotLimits, SnapshotStore
from deerflow.storage import EffectLog, EffectState


class RunEffects:
    """The effects of one run, as reported by its tools."""

    def __init__(
        self, *, log: EffectLog, run: RunRecord, files: SnapshotStore, settings: RunSettings
    ) -> None:
        self._log = log
        self._run = run
        self._files = files
        self._settings = settings
        self._keeping: asyncio.Task[None] | None = None

    async def start(self, call: bytes) -> EffectState | None:
        """Return when a call may execute, with its recorded state from an attempt that died."""
        if self._keeping is None or _has_failed(self._keeping):
            self._keeping = asyncio.create_task(self._keep())
        await asyncio.shield(self._keeping)  # other calls wait for the same snapshot
        return await self._log.start(self._run.id, attempt=self._run.attempt, call=call)

    def finish(self, call: bytes) -> None:
        """Record that a call is done."""
        self._log.finish(self._run.id, attempt=self._run.attempt, call=call)

    async def aclose(self) -> None:
        """Wait for a snapshot in progress: the next step may change the files."""
        if self._keeping is not None:
            await asyncio.gather(self._keeping, return_exceptions=True)

    async def _keep(self) -> None:
        limits = SnapshotLimits(self._settings.snapshot_max_bytes, kept=self._settings.snapshots_kept)
        try:
            await asyncio.to_thread(self._files.keep, self._run.id, limits)
        except OSError as error:
            # Nothing may change before the snapshot: a rollback could not undo it.
            raise StorageError(
                "the thread's files could not be kept for a rollback, so nothing may change them: "
                f"{error.strerror}; free some disk space, or make the thread's folder writable"
            ) from error


def _has_failed(keeping: asyncio.Task[None]) -> bool:
    return keeping.done() and (keeping.cancelled() or keeping.exception() is not None)
