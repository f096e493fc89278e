"""Checkpoint saver with small rows, one per step, that stores no part of a long conversation twice.

Integer versions, 16-byte ids, an integer per chain, one row for all writes of a task, large values by
their digest. A `DeltaChannel` is rebuilt by a walk that reads no checkpoint bodies on its way. Values are
strict msgpack: types that are not on the allow-list are decoded as plain data, and there is no pickle.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_metadata,
)
from typing_extensions import override

from deerflow.errors import ConflictError, InvalidInputError, NotFoundError
from deerflow.storage.base import FENCE, CheckpointStore, StoredSizes
from deerflow.storage.database import Database, Engine
from deerflow.storage.sql import checkpoint_chains as chains
from deerflow.storage.sql import checkpoint_codec as codec
from deerflow.storage.sql import checkpoint_marks as marks
from deerflow.storage.sql import checkpoint_walk as walks
from deerflow.storage.sql import checkpoints as rows
from deerflow.storage.sql.checkpoint_clock import count_on_from
from deerflow.storage.sql.checkpoint_shapes import CheckpointRow, NewCheckpoint, Place
from deerflow.storage.sql.checkpoint_sizes import sizes
from deerflow.storage.sql.checkpoint_walk import PAGE, Listing
from deerflow.storage.sql.message_cache import Recollection
from deerflow.storage.sql.serializer import StrictSerializer

_OWN_KEYS = ("__", "langgraph_", "lc_", "ls_")
"""Prefixes of the metadata keys that LangChain and LangGraph add themselves."""


class SqlSaver(CheckpointStore):
    """Checkpoints of all threads in the engine's database."""

    def __init__(self, engine: Engine, *, serde: StrictSerializer | None = None) -> None:
        super().__init__(serde=serde or StrictSerializer())
        self._engine = engine
        self._recollection = Recollection()

    @override
    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        place = _place(config)
        return self._taken(*await self._engine.peek(lambda db: _found(db, place)))

    @override
    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        place = _place(config)
        return self._taken(*self._engine.read_blocking(lambda db: _found(db, place)))

    @override
    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        listing: Listing | None = _listing(config, before)
        left = limit if limit is not None else -1
        while listing is not None and left != 0:
            size = left if not filter and 0 < left < PAGE else PAGE
            page, listing = await self._engine.read(_page(listing, size))
            for found in self._matching(page, filter):
                yield found
                left -= 1
                if left == 0:
                    return

    @override
    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        page, _ = self._engine.read_blocking(_page(_listing(config, before), -1))
        yield from islice(self._matching(page, filter), limit)

    @override
    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        new = self._new(config, checkpoint, metadata)
        weight = len(new.body) + sum(len(body) for _, body in new.blobs)
        await self._engine.write(_fenced(config, lambda db: rows.put(db, new)), may_wait=True, weight=weight)
        return codec.config_of(new.place)

    @override
    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        new = self._new(config, checkpoint, metadata)
        self._engine.write_blocking(_fenced(config, lambda db: rows.put(db, new)))
        return codec.config_of(new.place)

    @override
    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        work, weight = self._writing(config, writes, task_id, task_path)
        await self._engine.write(work, may_wait=True, weight=weight)

    @override
    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        self._engine.write_blocking(self._writing(config, writes, task_id, task_path)[0])

    @override
    async def adelete_thread(self, thread_id: str) -> None:
        await self._engine.write(lambda db: chains.delete_chains(db, str(thread_id)))

    @override
    def delete_thread(self, thread_id: str) -> None:
        self._engine.write_blocking(lambda db: chains.delete_chains(db, str(thread_id)))

    @override
    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._engine.write(lambda db: walks.delete_runs(db, run_ids))

    @override
    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        def work(db: Database) -> None:
            if chains.chains_of(db, target_thread_id):
                raise ConflictError(f"thread '{target_thread_id}' has checkpoints already: copy to a new one")
            walks.copy_chains(db, source_thread_id, target_thread_id)

        await self._engine.write(work)

    @override
    async def afork_thread(self, source_thread_id: str, target_thread_id: str, checkpoint_id: str) -> None:
        source = Place(source_thread_id, "", checkpoint_id)
        if not await self._engine.write(lambda db: walks.copy_branch(db, source, target_thread_id)):
            raise NotFoundError("checkpoint", checkpoint_id)

    @override
    async def ahas_run(self, thread_id: str, run_id: str) -> bool:
        return await self._engine.read(lambda db: rows.has_run(db, Place(thread_id, ""), run_id))

    @override
    async def anamespaces(self, thread_id: str) -> Sequence[RunnableConfig]:
        found = await self._engine.read(lambda db: chains.chains_of(db, thread_id))
        return [
            {"configurable": {"thread_id": thread, "checkpoint_ns": namespace}}
            for _, thread, namespace in found
        ]

    @override
    async def akeep_latest(self, thread_id: str) -> int:
        return await self._engine.write(lambda db: self._keep_latest(db, thread_id))

    def _keep_latest(self, db: Database, thread_id: str) -> int:
        return walks.keep_latest(db, thread_id, lambda body: codec.unheld_deltas(self.serde, body))

    @override
    async def asizes(self, thread_id: str) -> StoredSizes:
        return await self._engine.read(
            lambda db: sizes(db, thread_id, lambda body: codec.large_channels(self.serde, body))
        )

    @override
    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInputError(f"prune strategy '{strategy}' is unknown: use keep_latest or delete")

        def work(db: Database) -> None:
            for thread_id in thread_ids:
                if strategy == "delete":
                    chains.delete_chains(db, thread_id)
                else:
                    self._keep_latest(db, thread_id)

        await self._engine.write(work)

    @override
    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        place = _place(config)
        found = await self._engine.peek(lambda db: walks.history(db, place, channels))

        def recall(channel: str, stored: bytes, load: Callable[[bytes], Any]) -> Any:
            return self._recollection.value((place.thread_id, place.ns, channel), stored, load)

        return codec.decode_histories(self.serde, found, recall)

    @override
    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        place = _place(config)
        found = self._engine.read_blocking(lambda db: walks.history(db, place, channels))
        return codec.decode_histories(self.serde, found)

    async def make_mark(self, thread_id: str) -> bytes:
        """Return what `roll_back` needs to restore the thread and its sub-threads to their current state."""
        return await self._engine.read(lambda db: marks.make_mark(db, thread_id))

    async def roll_back(self, thread_id: str, mark: bytes) -> None:
        """Restore the checkpoints of a thread and its sub-threads to exactly their state at the mark."""
        await self._engine.write(lambda db: marks.roll_back(db, thread_id, mark))

    def _taken(self, row: CheckpointRow | None, newest: str | None) -> CheckpointTuple | None:
        """Return the decoded checkpoint and advance the id clock, since a run may continue from it."""
        if newest is not None:
            count_on_from(newest)
        return None if row is None else codec.decode_row(self.serde, row)

    def _matching(
        self, page: Sequence[CheckpointRow], wanted: Mapping[str, Any] | None
    ) -> Iterator[CheckpointTuple]:
        for row in page:
            found = codec.decode_row(self.serde, row)
            if all(found.metadata.get(key) == value for key, value in (wanted or {}).items()):
                yield found

    def _new(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> NewCheckpoint:
        place = _place(config)
        full = {**_noted(config), **get_checkpoint_metadata(config, metadata)}
        body, blobs = codec.encode_checkpoint(self.serde, checkpoint, full)
        return NewCheckpoint(
            place=Place(place.thread_id, place.ns, checkpoint["id"]),
            parent=place.id,
            run_id=full.get("run_id"),
            channels=tuple(checkpoint["channel_values"]),
            blobs=blobs,
            body=body,
        )

    def _writing(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> tuple[Callable[[Database], None], int]:
        """Return the write and its number of bytes."""
        place = _place(config)
        # Encode now, not in the writer thread: the caller may mutate the values meanwhile.
        encoded, is_special = codec.encode_writes(self.serde, writes)
        work = _fenced(
            config, lambda db: rows.put_writes(db, place, task_id, task_path, encoded, replace=is_special)
        )
        return work, sum(len(value) for _, _, value in encoded)


def _found(db: Database, place: Place) -> tuple[CheckpointRow | None, str | None]:
    """Return a checkpoint and the id of the newest one in its chain."""
    row = rows.get(db, place)
    if place.id is not None:  # a successor of an older checkpoint must still get the largest id
        return row, rows.newest_id(db, place)
    return row, None if row is None else row.place.id


def _place(config: RunnableConfig) -> Place:
    names = config["configurable"]
    return Place(
        str(names["thread_id"]), names.get("checkpoint_ns") or "", names.get("checkpoint_id") or None
    )


def _noted(config: RunnableConfig) -> dict[str, Any]:
    """Return the lists and dicts in a run's metadata, which `get_checkpoint_metadata` omits."""
    return {
        key: value
        for key, value in (config.get("metadata") or {}).items()
        if isinstance(value, list | dict) and not key.startswith(_OWN_KEYS)
    }


def _listing(config: RunnableConfig | None, before: RunnableConfig | None) -> Listing:
    names = config["configurable"] if config else {}
    return Listing(
        thread_id=names.get("thread_id"),
        ns=names.get("checkpoint_ns"),
        id=names.get("checkpoint_id"),
        before=_place(before).id if before else None,
    )


def _page(listing: Listing, size: int) -> Callable[[Database], tuple[list[CheckpointRow], Listing | None]]:
    """Return a function that reads one page and returns the listing of the next one, if any."""

    def work(db: Database) -> tuple[list[CheckpointRow], Listing | None]:
        page = walks.next_page(db, listing, size)
        return page, listing.after(page[-1]) if len(page) == size else None

    return work


def _fenced(config: RunnableConfig, work: Callable[[Database], None]) -> Callable[[Database], None]:
    """Return `work` preceded by a check that the attempt in the config has not ended."""
    fence: tuple[str, int] | None = config["configurable"].get(FENCE)

    def checked(db: Database) -> None:
        rows.check_fence(db, fence)
        work(db)

    return checked
