"""Drives one run to its end: borrows a sandbox, runs the agent, logs every step, settles."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphRecursionError
from langgraph.graph.state import CompiledStateGraph

from deerflow.config import Paths, Settings
from deerflow.context import RunContext
from deerflow.domain import RunRecord, RunStatus, ThreadStatus
from deerflow.errors import DeerFlowError, StaleAttemptError
from deerflow.models import explain
from deerflow.observability.logs import TRACE_ID, Redactor
from deerflow.runtime.inputs import graph_input
from deerflow.runtime.run_log import RunLog
from deerflow.runtime.stream_bridge import StreamBridge
from deerflow.runtime.tally import Tally
from deerflow.runtime.translate import graph_modes, translate
from deerflow.sandbox import SandboxProvider
from deerflow.storage.base import LogBatch, RunEnd, Storage, fence

logger = logging.getLogger(__name__)

Graph = CompiledStateGraph[Any, Any, Any, Any]
_LONGEST_ERROR = 2000
_REDACT = Redactor()
"""A provider may repeat the key that it refuses; everybody who follows the run would read it."""


class Stop(StrEnum):
    """Why a run in progress is told to stop."""

    INTERRUPT = "interrupt"
    TIMEOUT = "timeout"
    HANDOVER = "handover"
    """This process goes away; another one goes on with the run."""
    LOST = "lost"
    """Another process already has the run."""


@dataclass(frozen=True, slots=True)
class Crew:
    """What a run needs, chosen for its request from the settings of the moment."""

    settings: Settings
    agent: Graph
    sandboxes: SandboxProvider
    finish: Callable[[str], Awaitable[None]]
    """Ends what the run may have left at work, given its id; called before the sandbox goes back."""


class Worker:
    """Executes runs, one call each; holds nothing of a run between calls."""

    def __init__(
        self, *, storage: Storage, bridge: StreamBridge, paths: Paths, crew: Callable[[RunRecord], Crew]
    ) -> None:
        self._storage = storage
        self._bridge = bridge
        self._paths = paths
        self._crew = crew

    async def execute(self, run: RunRecord, log: RunLog, why_stopped: Callable[[], Stop | None]) -> None:
        """Drive a claimed `run` to its end; whatever happens, it is settled and its log ends."""
        tally = Tally()
        TRACE_ID.set(run.id[:8])
        try:
            await self._bridge.begin(log, run)
            await self._drive(run, log, tally)
            end = _ended(RunStatus.SUCCESS, tally)
        except asyncio.CancelledError:  # this is the task's root: nothing above waits for it
            stop = why_stopped() or Stop.HANDOVER
            if stop in (Stop.HANDOVER, Stop.LOST):
                await asyncio.shield(self._bridge.abandon(log))
                return
            end = _stopped(stop, tally)
        except TimeoutError:
            end = _stopped(Stop.TIMEOUT, tally)
        except StaleAttemptError:
            await asyncio.shield(self._bridge.abandon(log))
            return
        except Exception as error:
            end = _failed(run, error, tally)
        await asyncio.shield(self._settle(run, log, end, tally))

    async def _drive(self, run: RunRecord, log: RunLog, tally: Tally) -> None:
        request = run.request
        log.publish("metadata", {"run_id": run.id, "thread_id": run.thread_id, "attempt": run.attempt})
        crew = self._crew(run)
        folders = self._paths.thread(run.user_id, run.thread_id)
        async with (
            asyncio.timeout(crew.settings.runs.timeout_seconds),
            crew.sandboxes.lend(folders) as sandbox,
            _finished(crew, run),
        ):
            context = RunContext(
                run_id=run.id,
                thread_id=run.thread_id,
                user_id=run.user_id,
                settings=crew.settings,
                folders=folders,
                sandbox=sandbox,
                options=request.options,
                attempt=run.attempt,
                trace_id=run.id[:8],
                is_interactive=request.is_interactive,
                publish=lambda event: log.publish("custom", event),
                publish_update=lambda update: log.publish("updates", update),
                extra=request.context,
            )
            config = _config(run)
            values = await self._first_input(run, config)
            stream = crew.agent.astream(
                values,
                config,
                context=context,
                stream_mode=cast(Any, graph_modes(request.stream_modes)),
                subgraphs=True,
                durability="async",
                interrupt_before=_nodes(request.interrupt_before),
                interrupt_after=_nodes(request.interrupt_after),
            )
            async for part in stream:
                namespace, mode, chunk = cast(tuple[tuple[str, ...], str, Any], part)
                if namespace and not request.stream_subgraphs:
                    continue
                if mode == "updates" and not namespace:
                    tally.add(chunk)
                _publish(log, namespace, mode, chunk)

    async def _first_input(self, run: RunRecord, config: RunnableConfig) -> Any:
        """Return the run's input, or None when an earlier attempt already gave it to the graph."""
        if run.attempt > 1 and await _has_begun(self._storage.checkpoints, run):
            return None
        if run.request.checkpoint_id:
            config["configurable"]["checkpoint_id"] = run.request.checkpoint_id
            config["configurable"]["checkpoint_ns"] = ""
        return graph_input(run.request)

    async def _settle(self, run: RunRecord, log: RunLog, end: RunEnd, tally: Tally) -> None:
        async def settle(last: LogBatch) -> None:
            await self._storage.runs.settle(run.id, attempt=run.attempt, end=end, last=last)

        try:
            if end.error is not None:
                log.publish("error", {"message": end.error, "name": end.stop_reason})
            if tally.title:
                await self._storage.threads.update(run.thread_id, title=tally.title, touch=False)
            await self._bridge.publish_end(log, settle)
        except StaleAttemptError:
            logger.warning("run %s was taken over while it ended here", run.id)
            await self._bridge.abandon(log)
        except DeerFlowError:
            # The run stays active in the database, so the next start takes it up and ends it.
            logger.exception("run %s could not be settled", run.id)
            await self._bridge.abandon(log)


@asynccontextmanager
async def _finished(crew: Crew, run: RunRecord) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await crew.finish(run.id)


def _publish(log: RunLog, namespace: tuple[str, ...], mode: str, chunk: Any) -> None:
    happening = translate(namespace, mode, chunk)
    if happening is None:
        return
    if mode == "messages":
        message, metadata = happening.payload
        log.publish_chunk(happening.kind, message, metadata)
    else:
        log.publish(happening.kind, happening.payload)


def _config(run: RunRecord) -> RunnableConfig:
    return {
        "configurable": {"thread_id": run.thread_id, **fence(run.id, run.attempt)},
        "recursion_limit": run.request.recursion_limit,
        # Checkpoints carry this mark: a later attempt sees by it whether the input went in.
        "metadata": {"run_id": run.id},
    }


async def _has_begun(checkpoints: BaseCheckpointSaver[Any], run: RunRecord) -> bool:
    head = await checkpoints.aget_tuple({"configurable": {"thread_id": run.thread_id}})
    metadata: Mapping[str, Any] = head.metadata if head is not None else {}
    return metadata.get("run_id") == run.id


def _nodes(names: Any) -> Any:
    return names if names == "*" else list(names) or None


def _ended(status: RunStatus, tally: Tally, **more: Any) -> RunEnd:
    waiting = ThreadStatus.INTERRUPTED if tally.is_waiting else ThreadStatus.IDLE
    return RunEnd(
        status=status,
        thread_status=more.pop("thread_status", waiting),
        usage=tally.usage,
        message_count=tally.message_count,
        **more,
    )


def _stopped(stop: Stop, tally: Tally) -> RunEnd:
    if stop is Stop.TIMEOUT:
        return _ended(
            RunStatus.TIMEOUT,
            tally,
            thread_status=ThreadStatus.ERROR,
            error="The run took longer than runs.timeout_seconds allows; what it did so far is kept.",
            stop_reason="RunTimeout",
        )
    return _ended(RunStatus.INTERRUPTED, tally, thread_status=ThreadStatus.INTERRUPTED)


def _failed(run: RunRecord, error: Exception, tally: Tally) -> RunEnd:
    match error:
        case GraphRecursionError():
            text = (
                f"The agent used all {run.request.recursion_limit} steps of this run without finishing. "
                "What it did so far is kept: send another message to go on, or raise config.recursion_limit."
            )
        case DeerFlowError():
            text = str(error)
        case _ if (told := explain(error)) is not None:
            text = str(told)
        case _:
            logger.exception("run %s failed", run.id, exc_info=error)
            text = f"The run failed unexpectedly ({type(error).__name__}); the server's log says why."
    return _ended(
        RunStatus.ERROR,
        tally,
        thread_status=ThreadStatus.ERROR,
        error=_REDACT(text)[:_LONGEST_ERROR],
        stop_reason=type(error).__name__,
    )
