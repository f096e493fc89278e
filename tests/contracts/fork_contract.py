"""Forks of a thread's states, and what states take: the same for every database."""

from pathlib import Path

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from support.run_managers import Steps, hello, open_run_manager

from deerflow.errors import NotFoundError
from deerflow.runtime.conversation import config_of, id_of
from deerflow.storage import Storage


class ForkContract:
    """A subclass supplies `storage`."""

    async def test_a_fork_has_a_checkpoint_and_its_ancestors(self, storage: Storage, tmp_path: Path) -> None:
        steps = Steps()
        async with open_run_manager(storage, tmp_path, steps) as manager:
            for _ in range(3):
                steps.let("t1")
                await manager.wait((await manager.start(hello("t1"))).id)
        all_of_it = [found async for found in storage.checkpoints.alist(config_of("t1"))]
        tip = all_of_it[len(all_of_it) // 2]

        await storage.checkpoints.afork_thread("t1", "t2", id_of(tip.config))

        forked = [found async for found in storage.checkpoints.alist(config_of("t2"))]
        wanted = all_of_it[len(all_of_it) // 2 :]
        assert [found.checkpoint for found in forked] == [found.checkpoint for found in wanted]
        assert [found.metadata for found in forked] == [found.metadata for found in wanted]
        assert forked[0].pending_writes == []
        assert [found.pending_writes for found in forked[1:]] == [
            found.pending_writes for found in wanted[1:]
        ]
        assert [found async for found in storage.checkpoints.alist(config_of("t1"))] == all_of_it
        first, last = (str(found.metadata.get("run_id")) for found in (all_of_it[-1], all_of_it[0]))
        has_run = storage.checkpoints.ahas_run
        assert [await has_run(*pair) for pair in (("t1", first), ("t1", last), ("t2", first))] == [True] * 3
        assert [await has_run(*pair) for pair in (("t2", last), ("t1", "odd"), ("t3", first))] == [False] * 3

    async def test_an_unknown_checkpoint_is_not_forked(self, storage: Storage) -> None:
        with pytest.raises(NotFoundError):
            await storage.checkpoints.afork_thread("t1", "t2", "00000000-0000-0000-0000-000000000000")

        assert await storage.checkpoints.aget_tuple(config_of("t2")) is None

    async def test_sizes_of_checkpoints_are_added_up(self, storage: Storage, tmp_path: Path) -> None:
        steps = Steps()
        nothing = await storage.checkpoints.asizes("t1")
        async with open_run_manager(storage, tmp_path, steps) as manager:
            steps.let("t1")
            await manager.wait((await manager.start(hello("t1"))).id)
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"big": "x" * 100_000, "other": list(range(10_000))}
        await storage.checkpoints.aput(config_of("t1/task"), checkpoint, {"step": 1}, {})

        sizes = await storage.checkpoints.asizes("t1")

        stored = [found async for found in storage.checkpoints.alist(config_of("t1"))]
        assert (nothing.checkpoints.count, nothing.channels) == (0, {})
        assert sizes.checkpoints.count == len(stored) + 1
        assert sizes.checkpoints.bytes > 100
        assert sizes.writes.bytes > 10
        assert {name: amount.count for name, amount in sizes.channels.items()} == {"big": 1, "other": 1}
        assert sizes.channels["other"].bytes > 100
