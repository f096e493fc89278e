"""Executes one run to its end: acquires a sandbox, runs the agent, logs every step, stores the outcome."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, Protocol

from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import EXCLUDED_METADATA_KEYS, BaseCheckpointSaver
from langgraph.errors import EmptyInputError, GraphDrained, GraphRecursionError
from langgraph.runtime import RunControl

from deerflow.config import Paths, Settings
from deerflow.context import RunContext
from deerflow.domain import CancelAction, RunRecord, RunRequest, RunStatus, ThreadStatus
from deerflow.errors import (
    DeerFlowError,
    ModelError,
    RollbackWantedError,
    StaleAttemptError,
    StorageAwayError,
)
from deerflow.files.changes import keep_end
from deerflow.files.file_history import (
    FILES_RESTORED,
    regenerated_run,
    restore_files_before_turn,
    roll_back_files,
)
from deerflow.files.snapshots import RunEffects, SnapshotStore
from deerflow.models import explain
from deerflow.observability.logs import Redactor, trace_id_of
from deerflow.observability.watch import Callback, RunSeen, Watch
from deerflow.runtime.approval_cards import declined, waiting_calls, with_cards
from deerflow.runtime.event_log import RunLog, StreamBridge
from deerflow.runtime.graph_stream import Graph, Part, StreamedAnswer, graph_parts
from deerflow.runtime.inputs import check_goto, graph_input
from deerflow.runtime.interrupts import waiting_interrupts
from deerflow.runtime.states import ThreadStates
from deerflow.runtime.threads import input_with_title, title_set_by_user
from deerflow.runtime.translate import translate, visible_values
from deerflow.runtime.unfinished import keep_unfinished
from deerflow.runtime.usage import RunStats, prices_of
from deerflow.sandbox import SandboxProvider
from deerflow.storage import LogBatch, RunEnd, Storage, fence
from deerflow.web.service import WebService

logger = logging.getLogger(__name__)

ROLLED_BACK = "rolled_back"
"""The stop reason of a run that was rolled back."""
_LONGEST_ERROR = 2000


@dataclass(frozen=True, slots=True)
class RunSetup:
    """What a run needs, chosen for its request from the current settings."""

    settings: Settings
    agent: Graph
    sandboxes: SandboxProvider
    finish: Callable[[str], Awaitable[None]]
    """Ends tasks that the run left running, given its id; called before the sandbox is released."""
    model_name: str = ""
    """The lead agent's model, by its name in the settings."""


class RunPreparer(Protocol):
    """Chooses what runs need from the current settings; the application implements it."""

    @property
    def settings(self) -> Settings: ...

    async def resolve(self, request: RunRequest) -> RunRequest:
        """Return a request with the options of the agent it names; reject unknown agents and models."""
        ...

    async def prepare(self, run: RunRecord) -> RunSetup:
        """Return the setup of a claimed run."""
        ...


class StopReason(StrEnum):
    """Why a run in progress is stopped."""

    INTERRUPT = "interrupt"
    ROLLBACK = "rollback"
    TIMEOUT = "timeout"
    HANDOVER = "handover"
    """This process shuts down; another one resumes the run."""
    LOST = "lost"
    """Another process already owns the run."""


STOP_OF = {CancelAction.INTERRUPT: StopReason.INTERRUPT, CancelAction.ROLLBACK: StopReason.ROLLBACK}


class RunHandle:
    """Stops one run: immediately, or at its next step."""

    def __init__(self, stop_reason: StopReason | None = None, *, attempt: int = 1) -> None:
        """Args: `stop_reason` is set for a run that was cancelled before this process claimed it."""
        self.stop_reason = stop_reason
        self.attempt = attempt
        self.control = RunControl()
        self.task: asyncio.Task[None] | None = None
        self.has_started = False
        """Its log has begun; cancelled before that, the task could not store the run's end."""
        self.is_settling = False
        """The run has ended; a cancel would only interrupt the storing of its end."""
        self.is_left_behind = False
        """It could not be released: the process that resumes it has to wait for its lease to expire."""

    def stop(self, reason: StopReason) -> None:
        """Stop the run immediately; the first reason counts, but a rollback replaces an interrupt."""
        if (
            self.stop_reason is StopReason.INTERRUPT
            and reason is StopReason.ROLLBACK
            and not self.is_settling
        ):
            self.stop_reason = reason
        if self.stop_reason is not None or self.is_settling:
            return
        self.stop_reason = reason
        if self.has_started and self.task is not None:
            self.task.cancel()

    async def done(self) -> None:
        """Wait until this process no longer executes the run; cancelling the wait does not stop the run."""
        if self.task is not None:
            await asyncio.wait([self.task])

    def drain(self) -> None:
        """Stop the run before its next step."""
        self.control.request_drain()


class Worker:
    """Executes runs, one call each; keeps no state of a run between calls."""

    def __init__(
        self,
        *,
        storage: Storage,
        bridge: StreamBridge,
        paths: Paths,
        preparer: RunPreparer,
        states: ThreadStates,
        watch: Watch,
        web: WebService,
    ) -> None:
        self._storage = storage
        self._bridge = bridge
        self._paths = paths
        self._preparer = preparer
        self._states = states
        self._watch = watch
        self._web = web

    async def execute(self, run: RunRecord, log: RunLog, handle: RunHandle) -> None:
        """Execute a claimed `run` to its end; whatever happens, it is settled and its log ends."""
        stats = RunStats()
        with self._watch.run(run) as seen:
            end = await self._execute(run, log, stats, handle, seen.callbacks)
            _report(seen, end, stats, events=log.count)

    async def _execute(
        self, run: RunRecord, log: RunLog, stats: RunStats, handle: RunHandle, callbacks: Sequence[Callback]
    ) -> RunEnd | None:
        """Return how the run ended; None when another process resumes it."""
        try:
            await self._bridge.begin(log, run)
            handle.has_started = True
            end = await self._drive(run, log, stats, handle, callbacks)
        except asyncio.CancelledError:  # this is the task's root: nothing above waits for it
            if handle.stop_reason is None:
                await asyncio.shield(self._leave(run, log, handle, "its task was cancelled from outside"))
                return None
            if handle.stop_reason in (StopReason.HANDOVER, StopReason.LOST):
                await asyncio.shield(self._hand_over(run, log, handle))
                return None
            end = stopped(handle.stop_reason, stats)
        except (GraphDrained, StaleAttemptError):
            await asyncio.shield(self._hand_over(run, log, handle))
            return None
        except StorageAwayError as error:
            await asyncio.shield(self._leave(run, log, handle, f"its database was away: {error}"))
            return None
        except Exception as error:
            end = failed(run, error, stats, self._watch.redact)
        handle.is_settling = True
        await asyncio.shield(self._settle(run, log, end, stats))
        return end

    async def give_up(self, run: RunRecord, attempts: int) -> None:
        """End a claimed run that reached the maximum number of attempts, without executing it."""
        end = given_up(attempts, rolls_back=run.cancel is CancelAction.ROLLBACK)
        log = self._bridge.open(run, on_lost=lambda _: None)
        await self._bridge.begin(log, run)
        try:
            await self._record_results(run, log, end)
            log.publish("error", {"message": end.error, "name": end.stop_reason})
            await self._store_end(run, log, end)
        except BaseException:
            await self._bridge.abandon(log)  # another process ends the run: its readers switch there
            raise

    async def _drive(
        self, run: RunRecord, log: RunLog, stats: RunStats, handle: RunHandle, callbacks: Sequence[Callback]
    ) -> RunEnd:
        log.publish("metadata", {"run_id": run.id, "thread_id": run.thread_id, "attempt": run.attempt})
        if handle.stop_reason is not None:
            raise asyncio.CancelledError  # it was cancelled before its task could be
        setup = await self._preparer.prepare(run)
        check_goto(run.request, setup.agent.nodes)
        stats.begin(model_name=setup.model_name, prices=prices_of(setup.settings.models))
        config = _config(run)
        values = await self._first_input(run, config, setup.settings)
        if config["configurable"].get("checkpoint_id") and regenerated_run(run.request):
            await self._restore_files(run, log, setup)
        limit = asyncio.timeout(setup.settings.runs.timeout_seconds)
        try:
            streamed = StreamedAnswer()
            async with limit, self._context(run, log, setup, stats, streamed) as context:
                if callbacks:
                    config["callbacks"] = list(callbacks)
                parts = graph_parts(setup.agent, values, config, run.request, context, handle.control)
                async for part in parts:
                    _publish_part(log, stats, streamed, run, part)
        except TimeoutError:
            if not limit.expired():
                raise
            return stopped(StopReason.TIMEOUT, stats)
        if stats.is_waiting and setup.settings.compatibility == "deerflow":
            await _show_cards(run, log, self._states)
        return finished(stats)

    @asynccontextmanager
    async def _context(
        self, run: RunRecord, log: RunLog, setup: RunSetup, stats: RunStats, streamed: StreamedAnswer
    ) -> AsyncIterator[RunContext]:
        """Yield the run's context; release its resources when the block exits."""
        request = run.request
        folders = self._paths.thread(run.user_id, run.thread_id)
        async with setup.sandboxes.acquire(folders) as sandbox, self._web.session() as web:
            effects = RunEffects(
                log=self._storage.effects,
                run=run,
                files=SnapshotStore(folders),
                settings=setup.settings.runs,
                prepare=sandbox.prepare,
            )
            context = RunContext(
                run_id=run.id,
                thread_id=run.thread_id,
                user_id=run.user_id,
                settings=setup.settings,
                folders=folders,
                sandbox=sandbox,
                options=request.options,
                attempt=run.attempt,
                trace_id=trace_id_of(run.id),
                is_interactive=request.is_interactive,
                publish=partial(_publish, log, streamed),
                publish_update=lambda update: log.publish("updates", update),
                spend=stats.spend,
                record_skills=lambda used: self._storage.runs.add_skills(
                    run.id, attempt=run.attempt, used=used
                ),
                effects=effects,
                web=web,
                watch=self._watch,
                extra=request.context,
            )
            async with _finished(setup, run, effects):
                yield context

    async def _first_input(self, run: RunRecord, config: RunnableConfig, settings: Settings) -> Any:
        """Return the run's input, or None when an earlier attempt already passed it to the graph."""
        if run.attempt > 1 and await _has_begun(self._storage.checkpoints, run):
            return None
        values = graph_input(run.request)
        has_waited = run.updated_at > run.created_at  # the run before it may have been interrupted meanwhile
        if has_waited and isinstance(values, dict) and "messages" in values:
            values = await _declining_waiting_calls(values, run, self._states)
        if run.request.checkpoint_id:
            config["configurable"]["checkpoint_id"] = run.request.checkpoint_id
            config["configurable"]["checkpoint_ns"] = ""
            past = (run.thread_id, run.request.checkpoint_id)
            title = await title_set_by_user(self._storage, self._states, *past, settings.title)
            return values if title is None else input_with_title(values, title)
        return values

    async def _restore_files(self, run: RunRecord, log: RunLog, setup: RunSetup) -> None:
        """Restore the files from before the turn that this run regenerates."""
        problem = await restore_files_before_turn(self._storage, run, self._files(run), setup.settings.runs)
        log.publish("custom", {"type": FILES_RESTORED, "files_kept": problem})

    def _files(self, run: RunRecord) -> SnapshotStore:
        return SnapshotStore(self._paths.thread(run.user_id, run.thread_id))

    async def _hand_over(self, run: RunRecord, log: RunLog, handle: RunHandle) -> None:
        """Release a run that another process resumes, without storing an end."""
        await self._bridge.abandon(log)
        try:
            await self._storage.runs.release(run.id, attempt=run.attempt)
        except DeerFlowError as error:
            # Another process claims it anyway, once this one is gone.
            handle.is_left_behind = True
            logger.warning("run %s could not be released: %s", run.id, error)

    async def _leave(self, run: RunRecord, log: RunLog, handle: RunHandle, why: str) -> None:
        """Leave an aborted run to the process that finds it first, at the cost of an attempt.

        It is not released: a failure specific to this run would otherwise have it retried without end.
        """
        logger.warning("run %s is left to be resumed: %s", run.id, why)
        handle.is_left_behind = True
        await self._bridge.abandon(log)

    async def _settle(self, run: RunRecord, log: RunLog, end: RunEnd, stats: RunStats) -> None:
        try:
            try:
                await self._finish(run, log, end, stats)
            except RollbackWantedError:
                await self._finish(run, log, stopped(StopReason.ROLLBACK, stats), stats)
        except StaleAttemptError:
            logger.warning("run %s was taken over while it ended here", run.id)
            await self._bridge.abandon(log)
        except Exception:  # the run stays active in the database, and is claimed again
            logger.exception("run %s could not be settled", run.id)
            await self._bridge.abandon(log)

    async def _finish(self, run: RunRecord, log: RunLog, end: RunEnd, stats: RunStats) -> None:
        await self._record_results(run, log, end)
        if end.rolls_back:
            # Files have no fence: a stale attempt must not undo what later attempts did.
            await self._storage.effects.start(run.id, attempt=run.attempt, call=ROLLED_BACK.encode())
            end = replace(end, error=await roll_back_files(self._files(run), run.id))
            log.publish("custom", {"type": ROLLED_BACK, "files_kept": end.error})
        elif end.error is not None:
            # LangGraph's clients read `error`, DeerFlow's frontend reads `name`.
            log.publish("error", {"error": end.stop_reason, "message": end.error, "name": end.stop_reason})
        elif end.thread_status is ThreadStatus.INTERRUPTED:
            end = replace(end, interrupts=await waiting_interrupts(self._states, run.thread_id))
        await self._store_end(run, log, replace(end, title=stats.title))

    async def _record_results(self, run: RunRecord, log: RunLog, end: RunEnd) -> None:
        """Record the files that a run changed and its partial answer."""
        files = self._files(run)
        if files.has(run.id) and not end.rolls_back:
            await asyncio.to_thread(keep_end, files, run.id)
        await keep_unfinished(run, end, log=log, events=self._storage.events, states=self._states)

    async def _store_end(self, run: RunRecord, log: RunLog, end: RunEnd) -> None:
        """Store the run's last events and its final state in one transaction."""

        async def settle(last: LogBatch) -> None:
            await self._storage.runs.settle(run.id, attempt=run.attempt, end=end, last=last)

        await self._bridge.publish_end(log, settle)


@asynccontextmanager
async def _finished(setup: RunSetup, run: RunRecord, effects: RunEffects) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await setup.finish(run.id)
        await effects.aclose()


def _publish(log: RunLog, streamed: StreamedAnswer, event: Mapping[str, Any]) -> None:
    if event.get("type") == "llm_retry" and "task_id" not in event:
        streamed.retry()
    log.publish("custom", event)


def _publish_part(log: RunLog, stats: RunStats, streamed: StreamedAnswer, run: RunRecord, part: Part) -> None:
    namespace, mode, chunk = part
    if namespace and not run.request.stream_subgraphs:
        return
    if mode == "updates" and not namespace:
        stats.add(chunk)
        streamed.settle()
    event = translate(namespace, mode, chunk)
    if event is None:
        return
    if mode == "messages":
        message, metadata = event.payload
        if stats.first_token_at is None and isinstance(message, AIMessageChunk):
            stats.first_token_at = time.monotonic()
        withdrawn = None if namespace else streamed.take(message, metadata)
        if withdrawn is not None:
            log.publish_chunk(event.kind, withdrawn, metadata)
        log.publish_chunk(event.kind, message, metadata)
    else:
        log.publish(event.kind, event.payload)


def _report(seen: RunSeen, end: RunEnd | None, stats: RunStats, *, events: int) -> None:
    """Report the outcome of a run to telemetry."""
    if end is not None:
        seen.status = str(end.status)
    seen.events = events
    seen.first_token_at = stats.first_token_at
    usage = stats.usage
    seen.totals = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "deerflow.model_calls": usage.llm_calls,
    }


def _config(run: RunRecord) -> RunnableConfig:
    request = run.request
    metadata: dict[str, Any] = {
        key: value for key, value in request.metadata.items() if key not in EXCLUDED_METADATA_KEYS
    }
    if request.tags:
        metadata["tags"] = list(request.tags)
    return {
        "configurable": {"thread_id": run.thread_id, **fence(run.id, run.attempt)},
        "recursion_limit": request.recursion_limit,
        "tags": list(request.tags),
        # Stored in the checkpoints: a later attempt sees by it whether the input was applied.
        "metadata": {**metadata, "run_id": run.id},
    }


async def _has_begun(checkpoints: BaseCheckpointSaver[Any], run: RunRecord) -> bool:
    head = await checkpoints.aget_tuple({"configurable": {"thread_id": run.thread_id}})
    metadata: Mapping[str, Any] = head.metadata if head is not None else {}
    return metadata.get("run_id") == run.id


async def _show_cards(run: RunRecord, log: RunLog, states: ThreadStates) -> None:
    """Show waiting calls as messages too, for readers that do not support interrupts."""
    snapshot = await states.latest(run.thread_id)
    waiting = waiting_calls(snapshot) if snapshot is not None else []
    if snapshot is not None and waiting:
        values = with_cards(visible_values(snapshot.values), waiting)
        log.publish("values", {**values, "__interrupt__": waiting})


async def _declining_waiting_calls(
    values: dict[str, Any], run: RunRecord, states: ThreadStates
) -> dict[str, Any]:
    """Return an input that declines the waiting calls of its thread, as a new message does."""
    snapshot = await states.latest(run.thread_id) if run.request.checkpoint_id is None else None
    if snapshot is None or not waiting_calls(snapshot):
        return values
    return {**values, "messages": [*declined(snapshot), *values["messages"]]}


def finished(stats: RunStats) -> RunEnd:
    """Return the end of a run whose graph finished or was interrupted by a question."""
    waiting = ThreadStatus.INTERRUPTED if stats.is_waiting else ThreadStatus.IDLE
    return _end(RunStatus.SUCCESS, waiting, stats, asks=stats.is_asking)


def stopped(stop: StopReason, stats: RunStats) -> RunEnd:
    """Return the end of a run that was stopped."""
    match stop:
        case StopReason.TIMEOUT:
            return _end(
                RunStatus.TIMEOUT,
                ThreadStatus.ERROR,
                stats,
                error="The run took longer than runs.timeout_seconds allows; what it did so far is kept.",
                stop_reason="RunTimeout",
            )
        case StopReason.ROLLBACK:
            return _end(
                RunStatus.INTERRUPTED, ThreadStatus.IDLE, stats, stop_reason=ROLLED_BACK, rolls_back=True
            )
        case _:
            return _end(RunStatus.INTERRUPTED, ThreadStatus.INTERRUPTED, stats)


def failed(run: RunRecord, error: Exception, stats: RunStats, redact: Redactor) -> RunEnd:
    """Return the end of a run that failed.

    Args:
        redact: Removes secrets: a provider's error may repeat the key, and all readers of the run see it.
    """
    explained = error if isinstance(error, ModelError) else explain(error)
    text = str(explained) if explained is not None else _error_text(run, error)
    return _end(
        RunStatus.ERROR,
        ThreadStatus.ERROR,
        stats,
        error=redact(text)[:_LONGEST_ERROR],
        error_in_chinese=redact(explained.in_chinese)[:_LONGEST_ERROR] if explained is not None else None,
        error_reason=explained.reason if explained is not None else None,
        stop_reason=type(error).__name__,
    )


def _error_text(run: RunRecord, error: Exception) -> str:
    """Return the error text of a failure that no model caused."""
    match error:
        case GraphRecursionError():
            return (
                f"The agent used all {run.request.recursion_limit} steps of this run without finishing. "
                "What it did so far is kept: send another message to go on, or raise config.recursion_limit."
            )
        case EmptyInputError():  # it was queued behind a run that left no state
            return "The run has no input, and its thread has no state to go on from. Send a message."
        case DeerFlowError():
            return str(error)
        case _:
            logger.exception("run %s failed", run.id, exc_info=error)
            return f"The run failed unexpectedly ({type(error).__name__}); the server's log says why."


def given_up(attempts: int, *, rolls_back: bool = False) -> RunEnd:
    """Return the end of a run that reached the maximum number of attempts.

    Args:
        rolls_back: It was to be rolled back, and every attempt died before its files were restored.
    """
    if rolls_back:
        text = (
            "The conversation was restored, but not the files: the run was attempted "
            f"{attempts} times and aborted each time. The servers' logs say more."
        )
        return RunEnd(RunStatus.INTERRUPTED, error=text, stop_reason=ROLLED_BACK, rolls_back=True)
    text = (
        f"The run was attempted {attempts} times (runs.max_attempts) and aborted each time: its "
        "process died, or what it did could not be stored. Not trying again; the servers' logs say more."
    )
    return RunEnd(RunStatus.ERROR, ThreadStatus.ERROR, error=text, stop_reason="TooManyAttempts")


def _end(status: RunStatus, thread_status: ThreadStatus, stats: RunStats, **more: Any) -> RunEnd:
    return RunEnd(status, thread_status, usage=stats.usage, message_count=stats.message_count, **more)
