"""How a run in progress is stopped, and how partial output of failed model calls is withdrawn."""

import asyncio

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

from deerflow.runtime.graph_stream import StreamedAnswer
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


MODEL = {"langgraph_node": "model"}


def piece(message_id: str, *, is_last: bool = False) -> AIMessageChunk:
    return AIMessageChunk("word", id=message_id, chunk_position="last" if is_last else None)


def withdrawn(streamed: StreamedAnswer, message: BaseMessage) -> str | None:
    removed = streamed.take(message, MODEL)
    return removed.id if removed else None


def test_a_new_try_withdraws_the_one_that_broke_off() -> None:
    streamed = StreamedAnswer()

    found = [withdrawn(streamed, piece("a"))]
    streamed.retry()
    found += [withdrawn(streamed, piece(each)) for each in ("a", "b", "b")]

    assert found == [None, None, "a", None], "also where the last pieces come after the news of the retry"


def test_a_fallback_withdraws_what_the_model_before_it_had_said() -> None:
    streamed = StreamedAnswer()
    withdrawn(streamed, piece("call"))

    assert withdrawn(streamed, piece("call-fallback1")) == "call"
    assert withdrawn(streamed, AIMessage("whole", id="call-fallback1-0")) == "call-fallback1"


def test_whole_answers_and_other_nodes_stay() -> None:
    streamed = StreamedAnswer()
    streamed.retry()

    assert withdrawn(streamed, piece("a")) is None
    assert streamed.take(piece("title"), {"langgraph_node": "TitleMiddleware.after"}) is None
    assert withdrawn(streamed, piece("a", is_last=True)) is None
    assert withdrawn(streamed, piece("b")) is None, "an answer that came to its end is no failed try"
    streamed.settle()
    assert withdrawn(streamed, piece("c")) is None
