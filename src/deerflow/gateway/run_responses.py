"""How runs answer over HTTP: as a stream of events, or with the final values of their thread."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Literal

from fastapi import Request
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.domain import RunRecord, RunStatus, StreamEvent, seq_of
from deerflow.gateway.deps import json_response
from deerflow.gateway.sse import EventStream
from deerflow.runtime import visible_values
from deerflow.runtime.classic import ClassicMessages
from deerflow.runtime.retelling import Teller, retold
from deerflow.runtime.subgraph_frames import SubgraphFrames


def location(run: RunRecord, way: Literal["stream", "join"] = "stream") -> dict[str, str]:
    """Return the headers that say where a run is found, and where to go on when an answer breaks off.

    LangGraph's clients put the latter behind the address of the API that they were given, whichever it is.
    """
    path = f"/threads/{run.thread_id}/runs/{run.id}"
    return {"Content-Location": f"/api{path}", "Location": f"{path}/{way}"}


def event_stream(
    deerflow: DeerFlow,
    run: RunRecord,
    *,
    after: str | None = None,
    modes: tuple[str, ...] = (),
    cancel_on_leave: bool = False,
) -> EventStream:
    """Answer with a run's events, from behind `after` to the end."""
    chosen = frozenset(modes or run.request.stream_modes)
    return EventStream(
        batches_of(deerflow, run, after_seq=seq_of(after), modes=chosen),
        modes=chosen,
        headers=location(run),
        watch=deerflow.watch,
        on_leave=partial(deerflow.runs.cancel_many, [run]) if cancel_on_leave else None,
    )


def batches_of(
    deerflow: DeerFlow, run: RunRecord, *, after_seq: int, modes: frozenset[str]
) -> AsyncIterator[list[StreamEvent]]:
    """Follow a run, with messages in the older form and sub-agents as graphs for those who ask for it."""
    tellers: list[Teller] = []
    if run.request.stream_subgraphs:
        tellers.append(SubgraphFrames().take)
    if "messages" in modes and "messages-tuple" not in modes:
        tellers.append(ClassicMessages().take)
    if not tellers:
        return deerflow.runs.subscribe(run.id, after_seq=after_seq)
    # What a message has become so far is only known to who has read it from its start.
    return retold(deerflow.runs.subscribe(run.id), *tellers, after_seq=after_seq)


async def wait_for(
    deerflow: DeerFlow, run: RunRecord, request: Request, *, cancel_on_leave: bool
) -> Response:
    """Wait for a run's end with an eye on the client: for one that has left nobody waits."""
    waiting = asyncio.create_task(deerflow.runs.wait(run.id))
    try:
        while not waiting.done():
            await asyncio.wait((waiting,), timeout=0.5)
            if not waiting.done() and await request.is_disconnected():
                if cancel_on_leave:
                    await deerflow.runs.cancel_many([run])
                break
        else:
            await waiting  # who could not wait to the end must not answer as if it had come
    finally:
        waiting.cancel()
    return await final_values(deerflow, run.id)


async def final_values(deerflow: DeerFlow, run_id: str) -> Response:
    """Answer with the values of a run's thread, or with why there are none."""
    run = await deerflow.runs.get(run_id)
    headers = location(run, "join")
    if run.status in (RunStatus.ERROR, RunStatus.TIMEOUT):
        # In the words of DeerFlow 2, and in LangGraph's, by which its clients know a failure.
        failure = {"error": run.stop_reason, "message": run.error}
        told = {"status": run.status, "error": run.error, "__error__": failure}
        return json_response(told, headers=headers)
    snapshot = await deerflow.state.latest(run.thread_id)
    values: dict[str, Any] = visible_values(snapshot.values) if snapshot is not None else {}
    interrupts = [interrupt for task in snapshot.tasks for interrupt in task.interrupts] if snapshot else []
    if interrupts:
        values = {**values, "__interrupt__": interrupts}
    return json_response(values, headers=headers)
