"""How a run in progress is told to stop."""

import asyncio

import pytest

from deerflow.runtime.worker import RunHandle, StopReason


async def working() -> None:
    await asyncio.Event().wait()


@pytest.fixture
async def handle() -> RunHandle:
    handle = RunHandle()
    handle.task = asyncio.create_task(working())
    handle.has_started = True
    await asyncio.sleep(0)
    return handle


async def test_the_first_reason_counts_and_a_second_does_not_cancel_again(handle: RunHandle) -> None:
    assert handle.task is not None

    handle.stop(StopReason.HANDOVER)
    handle.stop(StopReason.INTERRUPT)

    assert handle.stop_reason is StopReason.HANDOVER
    assert handle.task.cancelling() == 1
    with pytest.raises(asyncio.CancelledError):
        await handle.task


async def test_a_rollback_adds_to_an_interrupt(handle: RunHandle) -> None:
    assert handle.task is not None

    handle.stop(StopReason.INTERRUPT)
    handle.stop(StopReason.ROLLBACK)
    handle.stop(StopReason.INTERRUPT)

    assert handle.stop_reason is StopReason.ROLLBACK
    assert handle.task.cancelling() == 1
    with pytest.raises(asyncio.CancelledError):
        await handle.task


async def test_a_run_that_has_not_started_is_told_without_being_cancelled() -> None:
    handle = RunHandle()
    handle.task = asyncio.create_task(asyncio.sleep(0))

    handle.stop(StopReason.INTERRUPT)

    await handle.task
    assert handle.stop_reason is StopReason.INTERRUPT


async def test_the_writing_of_an_end_is_not_cut_off(handle: RunHandle) -> None:
    assert handle.task is not None
    handle.is_settling = True

    handle.stop(StopReason.INTERRUPT)

    assert (handle.stop_reason, handle.task.cancelling()) == (None, 0)
    handle.task.cancel()


async def test_draining_asks_the_graph_and_cancels_nothing(handle: RunHandle) -> None:
    assert handle.task is not None

    handle.drain()

    assert handle.control.drain_requested
    assert handle.task.cancelling() == 0
    handle.task.cancel()
