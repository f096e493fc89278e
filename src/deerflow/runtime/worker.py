"""Executes one run to its end: acquires a sandbox, runs the agent, logs every step, stores the outcome."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import EXCLUDED_METADATA_KEYS, BaseCheckpointSaver
from langgraph.errors import GraphDrained
from langgraph.graph.state import CompiledStateGraph

from deerflow.config import Paths, Settings
from deerflow.context import RunContext
from deerflow.domain import RunRecord, ThreadStatus
from deerflow.errors import DeerFlowError, RollbackWantedError, StaleAttemptError, StorageAwayError
from deerflow.files.changes import keep_end
from deerflow.files.file_history import FILES_TURNED_BACK, put_files_back, taken_again, turn_files_back
from deerflow.files.snapshots import SnapshotStore
from deerflow.observability.logs import trace_id_of
from deerflow.observability.watch import Callback, RunSeen, Watch
from deerflow.runtime import outcomes
from deerflow.runtime.approval_cards import declined, waiting_calls, with_cards
from deerflow.runtime.effects import RunEffects
from deerflow.runtime.graph_stream import Part, graph_parts
from deerflow.runtime.handle import RunHandle, Stop
from deerflow.runtime.inputs import check_goto, graph_input
from deerflow.runtime.run_log import RunLog
from deerflow.runtime.run_stats import RunStats
from deerflow.runtime.spending import prices_of
from deerflow.runtime.states import ThreadStates
from deerflow.runtime.stream_bridge import StreamBridge
from deerflow.runtime.streamed_answer import StreamedAnswer
from deerflow.runtime.titles import given_title, titled
from deerflow.runtime.translate import translate, visible_values
from deerflow.runtime.unfinished import keep_unfinished
from deerflow.sandbox import SandboxProvider
from deerflow.storage import LogBatch, RunEnd, Storage, fence

logger = logging.getLogger(__name__)

Graph = CompiledStateGraph[Any, Any, Any, Any]


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


class Worker:
    """Executes runs, one call each; keeps no state of a run between calls."""

    def __init__(
        self,
        *,
        storage: Storage,
        bridge: StreamBridge,
        paths: Paths,
        prepare_run: Callable[[RunRecord], Awaitable[RunSetup]],
        watch: Watch | None = None,
        questions: Callable[[str], Awaitable[Mapping[str, Any]]] | None = None,
        states: ThreadStates | None = None,
    ) -> None:
        """Create a worker.

        Args:
            questions: Returns the waiting interrupts of a thread, for lists of threads.
            states: Stores the partial answer of an aborted run; None: it is not stored.
        """
        self._storage = storage
        self._bridge = bridge
        self._paths = paths
        self._prepare_run = prepare_run
        self._watch = watch or Watch()
        self._questions = questions
        self._states = states

    async def execute(self, run: RunRecord, log: RunLog, handle: RunHandle) -> None:
        """Execute a claimed `run` to its end; whatever happens, it is settled and its log ends."""
        tally = RunStats()
        with self._watch.run(run) as seen:
            end = await self._execute(run, log, tally, handle, seen.callbacks)
            _tell(seen, end, tally, events=log.count)

    async def _execute(
        self, run: RunRecord, log: RunLog, tally: RunStats, handle: RunHandle, callbacks: Sequence[Callback]
    ) -> RunEnd | None:
        """Return how the run ended; None when another process resumes it."""
        try:
            await self._bridge.begin(log, run)
            handle.has_started = True
            end = await self._drive(run, log, tally, handle, callbacks)
        except asyncio.CancelledError:  # this is the task's root: nothing above waits for it
            if handle.stop is None:
                await asyncio.shield(self._leave(run, log, handle, "somebody else cancelled its task"))
                return None
            if handle.stop in (Stop.HANDOVER, Stop.LOST):
                await asyncio.shield(self._hand_over(run, log, handle))
                return None
            end = outcomes.stopped(handle.stop, tally)
        except (GraphDrained, StaleAttemptError):
            await asyncio.shield(self._hand_over(run, log, handle))
            return None
        except StorageAwayError as error:
            await asyncio.shield(self._leave(run, log, handle, f"its database was away: {error}"))
            return None
        except Exception as error:
            end = outcomes.failed(run, error, tally, self._watch.redact)
        handle.is_settling = True
        await asyncio.shield(self._settle(run, log, end, tally))
        return end

    async def keep_traces(self, run: RunRecord, log: RunLog, end: RunEnd) -> None:
        """Record the files that a run changed and its partial answer."""
        files = self._files(run)
        if files.has(run.id) and not end.rolls_back:
            await asyncio.to_thread(keep_end, files, run.id)
        if self._states is not None:
            events = self._storage.events
            await keep_unfinished(run, end, log=log, events=events, states=self._states)

    async def _drive(
        self, run: RunRecord, log: RunLog, tally: RunStats, handle: RunHandle, callbacks: Sequence[Callback]
    ) -> RunEnd:
        log.publish("metadata", {"run_id": run.id, "thread_id": run.thread_id, "attempt": run.attempt})
        if handle.stop is not None:
            raise asyncio.CancelledError  # it was cancelled before its task could be
        setup = await self._prepare_run(run)
        check_goto(run.request, setup.agent.nodes)
        tally.begin(model_name=setup.model_name, prices=prices_of(setup.settings.models))
        config = _config(run)
        values = await self._first_input(run, config, setup.settings)
        if config["configurable"].get("checkpoint_id") and taken_again(run.request):
            await self._turn_files_back(run, log, setup)
        limit = asyncio.timeout(setup.settings.runs.timeout_seconds)
        try:
            streamed = StreamedAnswer()
            async with limit, self._borrowed(run, log, setup, tally, streamed) as context:
                if callbacks:
                    config["callbacks"] = list(callbacks)
                parts = graph_parts(setup.agent, values, config, run.request, context, handle.control)
                async for part in parts:
                    _take_in(log, tally, streamed, run, part)
        except TimeoutError:
            if not limit.expired():
                raise
            return outcomes.stopped(Stop.TIMEOUT, tally)
        if tally.is_waiting and self._states is not None and setup.settings.compatibility == "deerflow":
            await _show_cards(run, log, self._states)
        return outcomes.finished(tally)

    @asynccontextmanager
    async def _borrowed(
        self, run: RunRecord, log: RunLog, setup: RunSetup, tally: RunStats, streamed: StreamedAnswer
    ) -> AsyncIterator[RunContext]:
        """Yield the run's context; release its resources when the block exits."""
        request = run.request
        folders = self._paths.thread(run.user_id, run.thread_id)
        files = SnapshotStore(folders)
        effects = RunEffects(log=self._storage.effects, run=run, files=files, settings=setup.settings.runs)
        async with setup.sandboxes.lend(folders) as sandbox, _finished(setup, run, effects):
            yield RunContext(
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
                told=partial(log.flush, is_urgent=True),
                publish_update=lambda update: log.publish("updates", update),
                spend=tally.spend,
                effects=effects,
                watch=self._watch,
                extra=request.context,
            )

    async def _first_input(self, run: RunRecord, config: RunnableConfig, settings: Settings) -> Any:
        """Return the run's input, or None when an earlier attempt already passed it to the graph."""
        if run.attempt > 1 and await _has_begun(self._storage.checkpoints, run):
            return None
        values = graph_input(run.request)
        has_waited = run.updated_at > run.created_at  # the run before it may have been interrupted meanwhile
        if has_waited and self._states is not None and isinstance(values, dict) and "messages" in values:
            values = await _without_waiting(values, run, self._states)
        if run.request.checkpoint_id:
            config["configurable"]["checkpoint_id"] = run.request.checkpoint_id
            config["configurable"]["checkpoint_ns"] = ""
            if self._states is not None:
                past = (run.thread_id, run.request.checkpoint_id)
                title = await given_title(self._storage, self._states, *past, settings.title)
                return values if title is None else titled(values, title)
        return values

    async def _turn_files_back(self, run: RunRecord, log: RunLog, setup: RunSetup) -> None:
        """Restore the files from before the turn that this run regenerates."""
        problem = await turn_files_back(self._storage, run, self._files(run), setup.settings.runs)
        log.publish("custom", {"type": FILES_TURNED_BACK, "files_kept": problem})

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
        logger.warning("run %s is left to be taken up again: %s", run.id, why)
        handle.is_left_behind = True
        await self._bridge.abandon(log)

    async def _settle(self, run: RunRecord, log: RunLog, end: RunEnd, tally: RunStats) -> None:
        try:
            try:
                await self._finish(run, log, end, tally)
            except RollbackWantedError:
                await self._finish(run, log, outcomes.stopped(Stop.ROLLBACK, tally), tally)
        except StaleAttemptError:
            logger.warning("run %s was taken over while it ended here", run.id)
            await self._bridge.abandon(log)
        except Exception:  # the run stays active in the database, and is claimed again
            logger.exception("run %s could not be settled", run.id)
            await self._bridge.abandon(log)

    async def _finish(self, run: RunRecord, log: RunLog, end: RunEnd, tally: RunStats) -> None:
        await self.keep_traces(run, log, end)
        if end.rolls_back:
            # Files have no fence: a stale attempt must not undo what later attempts did.
            await self._storage.effects.start(run.id, attempt=run.attempt, call=outcomes.ROLLED_BACK.encode())
            end = replace(end, error=await put_files_back(self._files(run), run.id))
            log.publish("custom", {"type": outcomes.ROLLED_BACK, "files_kept": end.error})
        elif end.error is not None:
            # LangGraph's clients read `error`, DeerFlow's frontend reads `name`.
            told = {"error": end.stop_reason, "message": end.error, "name": end.stop_reason}
            log.publish("error", told)
        elif end.thread_status is ThreadStatus.INTERRUPTED and self._questions is not None:
            end = replace(end, interrupts=await self._questions(run.thread_id))
        end = replace(end, title=tally.title)

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


def _take_in(log: RunLog, tally: RunStats, streamed: StreamedAnswer, run: RunRecord, part: Part) -> None:
    namespace, mode, chunk = part
    if namespace and not run.request.stream_subgraphs:
        return
    if mode == "updates" and not namespace:
        tally.add(chunk)
        streamed.settle()
    happening = translate(namespace, mode, chunk)
    if happening is None:
        return
    if mode == "messages":
        message, metadata = happening.payload
        if tally.first_token_at is None and isinstance(message, AIMessageChunk):
            tally.first_token_at = time.monotonic()
        withdrawn = None if namespace else streamed.take(message, metadata)
        if withdrawn is not None:
            log.publish_chunk(happening.kind, withdrawn, metadata)
        log.publish_chunk(happening.kind, message, metadata)
    else:
        log.publish(happening.kind, happening.payload)


def _tell(seen: RunSeen, end: RunEnd | None, tally: RunStats, *, events: int) -> None:
    """Report the outcome of a run to telemetry."""
    if end is not None:
        seen.status = str(end.status)
    seen.events = events
    seen.first_token_at = tally.first_token_at
    usage = tally.usage
    seen.totals = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "deerflow.model_calls": usage.llm_calls,
    }


def _config(run: RunRecord) -> RunnableConfig:
    request = run.request
    noted: dict[str, Any] = {
        key: value for key, value in request.metadata.items() if key not in EXCLUDED_METADATA_KEYS
    }
    if request.tags:
        noted["tags"] = list(request.tags)
    return {
        "configurable": {"thread_id": run.thread_id, **fence(run.id, run.attempt)},
        "recursion_limit": request.recursion_limit,
        "tags": list(request.tags),
        # Stored in the checkpoints: a later attempt sees by it whether the input was applied.
        "metadata": {**noted, "run_id": run.id},
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


async def _without_waiting(values: dict[str, Any], run: RunRecord, states: ThreadStates) -> dict[str, Any]:
    """Return an input that declines the waiting calls of its thread, as a new message does."""
    snapshot = await states.latest(run.thread_id) if run.request.checkpoint_id is None else None
    if snapshot is None or not waiting_calls(snapshot):
        return values
    return {**values, "messages": [*declined(snapshot), *values["messages"]]}
