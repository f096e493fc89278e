"""What stands between a run's tools and the world: files are kept first, and no call runs twice unasked."""

import asyncio

from deerflow.config import RunSettings
from deerflow.domain import RunRecord
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
        self._keeping: asyncio.Task[object] | None = None

    async def start(self, call: bytes) -> EffectState | None:
        """Return once a call may do its work; with what is known of it from an attempt that died."""
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep())
        if not self._keeping.done():
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
        await asyncio.to_thread(self._files.keep, self._run.id, limits)
