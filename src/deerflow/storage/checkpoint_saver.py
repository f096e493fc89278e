"""Checkpoint saver with small rows, one per step, that stores no part of a long conversation twice.

Integer versions, 16-byte ids, an integer per chain, one row for all writes of a task, large values by
their digest. A `DeltaChannel` is rebuilt by a walk that reads no checkpoint bodies on its way. Values are
strict msgpack: types that are not on the allow-list are decoded as plain data, and there is no pickle.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_metadata,
)
from typing_extensions import override

from deerflow.errors import ConflictError, InvalidInputError, NotFoundError
from deerflow.storage import checkpoint_encoding as encoding
from deerflow.storage import checkpoint_rows as rows
from deerflow.storage.checkpoint_encoding import CheckpointRef, CheckpointRow
from deerflow.storage.checkpoint_rows import CheckpointListing, StoredSizes
from deerflow.storage.database import Database, Engine
from deerflow.storage.langgraph_private import StrictSerializer, advance_id_clock

FENCE = "__deerflow_fence__"
"""Key in a graph's `configurable` that holds the run id and attempt for its checkpoint writes."""
_PAGE = 64
"""How many checkpoints are read at once when a list has no small limit."""
_LANGCHAIN_KEYS = ("__", "langgraph_", "lc_", "ls_")
"""Prefixes of the metadata keys that LangChain and LangGraph add themselves."""


def fence(run_id: str, attempt: int) -> dict[str, tuple[str, int]]:
    """Return the `configurable` entry that makes checkpoints of a stale attempt be refused."""
    return {FENCE: (run_id, attempt)}


class CheckpointSaver(BaseCheckpointSaver[int]):
    """Checkpoints of all threads, for asynchronous callers."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(serde=StrictSerializer())
        self._engine = engine

    @override
    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        ref = _ref(config)

        def work(db: Database) -> tuple[CheckpointRow | None, str | None]:
            row = rows.get(db, ref)
            if ref.id is not None:  # a successor of an older checkpoint must still get the largest id
                return row, rows.newest_id(db, ref)
            return row, None if row is None else row.ref.id

        row, newest = await self._engine.peek(work)
        if newest is not None:
            advance_id_clock(newest)  # a run may continue from here
        return None if row is None else encoding.decode_checkpoint(self.serde, row)

    @override
    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        names = config["configurable"] if config else {}
        listing = CheckpointListing(
            thread_id=names.get("thread_id"),
            ns=names.get("checkpoint_ns"),
            id=names.get("checkpoint_id"),
            before=_ref(before).id if before else None,
        )
        left = limit if limit is not None else -1
        while left != 0:
            size = left if not filter and 0 < left < _PAGE else _PAGE
            page = await self._read_page(listing, size)
            for row in page:
                found = encoding.decode_checkpoint(self.serde, row)
                if all(found.metadata.get(key) == value for key, value in (filter or {}).items()):
                    yield found
                    left -= 1
                    if left == 0:
                        return
            if len(page) < size:
                return
            listing = listing.after(page[-1])

    async def _read_page(self, listing: CheckpointListing, size: int) -> list[CheckpointRow]:
        return await self._engine.read(lambda db: rows.next_page(db, listing, size))

    @override
    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        parent = _ref(config)
        full = {**_nested_metadata(config), **get_checkpoint_metadata(config, metadata)}
        body, blobs = encoding.encode_checkpoint(self.serde, checkpoint, full)
        ref, run_id = CheckpointRef(parent.thread_id, parent.ns, checkpoint["id"]), full.get("run_id")
        channels = tuple(checkpoint["channel_values"])
        await self._write(
            config,
            lambda db: rows.put(
                db, ref, body, parent=parent.id, run_id=run_id, channels=channels, blobs=blobs
            ),
            weight=len(body) + sum(len(blob) for _, blob in blobs),
        )
        return ref.config()

    @override
    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        ref = _ref(config)
        # Encode now, not in the writer thread: the caller may mutate the values meanwhile.
        encoded, is_special = encoding.encode_writes(self.serde, writes)
        await self._write(
            config,
            lambda db: rows.put_writes(db, ref, task_id, task_path, encoded, replace=is_special),
            weight=sum(len(value) for _, _, value in encoded),
        )

    async def _write(self, config: RunnableConfig, work: Callable[[Database], None], *, weight: int) -> None:
        """Do `work` after a check, in the same transaction, that the attempt in the config has not ended."""
        attempt: tuple[str, int] | None = config["configurable"].get(FENCE)

        def checked(db: Database) -> None:
            rows.check_fence(db, attempt)
            work(db)

        await self._engine.write(checked, may_wait=True, weight=weight)

    @override
    async def adelete_thread(self, thread_id: str) -> None:
        await self._engine.write(lambda db: rows.delete_chains(db, str(thread_id)))

    @override
    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._engine.write(lambda db: rows.delete_runs(db, run_ids))

    @override
    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        def work(db: Database) -> None:
            if rows.chains_of(db, target_thread_id):
                raise ConflictError(f"thread '{target_thread_id}' has checkpoints already: copy to a new one")
            rows.copy_chains(db, source_thread_id, target_thread_id)

        await self._engine.write(work)

    @override
    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInputError(f"prune strategy '{strategy}' is unknown: use keep_latest or delete")

        def work(db: Database) -> None:
            for thread_id in thread_ids:
                if strategy == "delete":
                    rows.delete_chains(db, thread_id)
                else:
                    rows.keep_latest(db, thread_id)

        await self._engine.write(work)

    @override
    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        ref = _ref(config)
        found = await self._engine.peek(lambda db: rows.history(db, ref, channels))
        return encoding.decode_histories(self.serde, found)

    async def afork_thread(self, source_thread_id: str, target_thread_id: str, checkpoint_id: str) -> None:
        """Copy a thread's checkpoints up to one of them into a new thread, without those of sub-agents.

        `NotFoundError` when the source has no such checkpoint.
        """
        source = CheckpointRef(source_thread_id, "", checkpoint_id)
        if not await self._engine.write(lambda db: rows.copy_branch(db, source, target_thread_id)):
            raise NotFoundError("checkpoint", checkpoint_id)

    async def ahas_run(self, thread_id: str, run_id: str) -> bool:
        """Return whether a run created a checkpoint of the thread, including copies from another thread."""
        return await self._engine.read(lambda db: rows.has_run(db, CheckpointRef(thread_id, ""), run_id))

    async def anamespaces(self, thread_id: str) -> Sequence[RunnableConfig]:
        """Return the newest checkpoints of a thread and its sub-threads: one config per namespace."""
        found = await self._engine.read(lambda db: rows.chains_of(db, thread_id))
        return [
            {"configurable": {"thread_id": thread, "checkpoint_ns": namespace}}
            for _, thread, namespace in found
        ]

    async def akeep_latest(self, thread_id: str) -> int:
        """Delete checkpoints that the newest one of each namespace does not need; return their number."""
        return await self._engine.write(lambda db: rows.keep_latest(db, thread_id))

    async def asizes(self, thread_id: str) -> StoredSizes:
        """Return the storage used by a thread's checkpoints; zero for an unknown thread."""
        return await self._engine.read(lambda db: rows.sizes(db, thread_id))


def _ref(config: RunnableConfig) -> CheckpointRef:
    names = config["configurable"]
    return CheckpointRef(
        str(names["thread_id"]), names.get("checkpoint_ns") or "", names.get("checkpoint_id") or None
    )


def _nested_metadata(config: RunnableConfig) -> dict[str, Any]:
    """Return the lists and dicts in a run's metadata, which `get_checkpoint_metadata` omits."""
    return {
        key: value
        for key, value in (config.get("metadata") or {}).items()
        if isinstance(value, list | dict) and not key.startswith(_LANGCHAIN_KEYS)
    }
