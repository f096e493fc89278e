"""Execute tasks concurrently within limits; tasks can be cancelled and keep their findings."""

import asyncio
import contextvars
import logging
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from langchain_core.messages import AnyMessage
from langgraph.errors import GraphRecursionError

from deerflow.domain import new_id
from deerflow.errors import ConflictError, DeerFlowError, NotFoundError
from deerflow.observability.logs import mark_logs
from deerflow.subagents.condense import clip_to, condense, estimate_tokens, is_too_long, write_full_text
from deerflow.subagents.config import ResumeAnswer, SubagentResult, SubagentStatus, TaskSpec
from deerflow.subagents.graph_runner import GraphRunner, TaskEnd
from deerflow.subagents.slots import FairSlots, TaskSlot

logger = logging.getLogger(__name__)

TaskKey = tuple[str, str]
"""Run id and task id: some models reuse their call ids in every conversation."""

MAX_KEPT_RESULTS = 1024
SUMMARY_SECONDS = 120


class SubagentExecutor:
    """Executes all tasks of this process."""

    def __init__(self, *, max_running: int) -> None:
        self._slots = FairSlots(max_running)
        self._attempts: dict[TaskKey, Attempt] = {}
        self._jobs: dict[TaskKey, asyncio.Task[None]] = {}
        self._cancel_requests: set[TaskKey] = set()
        self._results: OrderedDict[TaskKey, SubagentResult] = OrderedDict()
        self._started: defaultdict[str, set[str]] = defaultdict(set)
        self._background: dict[TaskKey, asyncio.Task[SubagentResult]] = {}
        self._asking: dict[TaskKey, Attempt] = {}
        self._unreported: defaultdict[str, list[str]] = defaultdict(list)
        """By run: the background tasks that ended and were not reported to the lead agent yet."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sync_lock = threading.Lock()

    async def execute(self, task: TaskSpec) -> SubagentResult:
        """Run a task until it ends or asks; failures are results, and only cancelling the caller raises."""
        self._loop = asyncio.get_running_loop()
        parent = self._attempts.get((task.context.run_id, task.context.task_id or ""))
        if parent is None or parent.slot is None:
            return await self._wait_for(self._start(task))
        async with parent.slot.released():  # the parent does not need it while it waits
            return await self._wait_for(self._start(task))

    def execute_sync(self, task: TaskSpec) -> SubagentResult:
        """Run a task from synchronous code and return its result.

        Works without a running loop, and in a thread other than that of the loop that runs the tasks. On that
        loop's thread it would deadlock, so it raises `ConflictError`.
        """
        try:
            current = asyncio.get_running_loop()
        except RuntimeError:
            current = None
        loop = self._loop
        if loop is not None and loop.is_running():
            if current is loop:
                raise ConflictError("this thread runs the tasks' loop; use 'await executor.execute(task)'")
            return asyncio.run_coroutine_threadsafe(self.execute(task), loop).result()
        with self._sync_lock:  # one loop at a time: the futures of queued tasks belong to one loop
            if current is None:
                return asyncio.run(self._execute_on_own_loop(task))
            with ThreadPoolExecutor(1) as thread:
                return thread.submit(lambda: asyncio.run(self._execute_on_own_loop(task))).result()

    def execute_async(self, task: TaskSpec) -> str:
        """Start a task in the background and return its id; `wait` returns its result."""
        self._loop = asyncio.get_running_loop()
        attempt = self._start(task)
        job = asyncio.create_task(self._wait_for(attempt), context=contextvars.Context())
        self._background[task.key] = job
        job.add_done_callback(lambda _: self._background_stopped(task.key))
        return task.task_id

    def answer(self, run_id: str, task_id: str, value: object) -> None:
        """Resume a background task with a person's answer; later answers are ignored."""
        attempt = self._asking.get((run_id, task_id))
        if attempt is not None:
            self.execute_async(replace(attempt.task, resume=ResumeAnswer(value)))

    async def wait(self, run_id: str, task_id: str) -> SubagentResult:
        """Return a background task once it has ended or asks; cancelling the wait does not cancel it."""
        job = self._background.get((run_id, task_id))
        if job is not None:
            await asyncio.wait([job])
        return self._require(run_id, task_id)

    async def wait_for_background(self, run_id: str) -> None:
        """Wait until each background task of a run has ended or asks."""
        jobs = [job for key, job in self._background.items() if key[0] == run_id]
        if jobs:
            await asyncio.wait(jobs)

    def background(self, run_id: str) -> list[SubagentResult]:
        """Return the background tasks of a run that have not ended."""
        return [each for each in self.list(run_id) if each.is_background and not each.status.is_terminal]

    def take_unreported(self, run_id: str, task_id: str | None = None) -> list[SubagentResult]:
        """Return the background tasks that ended and were not reported yet; each is returned once."""
        ended = [each for each in self._unreported.get(run_id, ()) if task_id in (None, each)]
        left = [each for each in self._unreported.pop(run_id, ()) if each not in ended]
        if left:
            self._unreported[run_id] = left
        return [self._require(run_id, each) for each in ended]

    def send(self, run_id: str, task_id: str, text: str) -> bool:
        """Add a message to a running task's inbox, read before its next step; False without such a task."""
        attempt = self._attempts.get((run_id, task_id))
        if attempt is None or attempt.result.status.is_terminal:
            return False
        attempt.inbox.append(text)
        return True

    def take_messages(self, run_id: str, task_id: str) -> list[str]:
        """Return and remove the messages in a task's inbox."""
        attempt = self._attempts.get((run_id, task_id))
        if attempt is None:
            return []
        taken = list(attempt.inbox)
        attempt.inbox.clear()
        return taken

    def request_cancel(self, run_id: str, task_id: str) -> bool:
        """Cancel a task, including its running tool; False when there is no such task to cancel."""
        key = (run_id, task_id)
        job = self._jobs.get(key)
        if job is not None and not job.done():
            self._cancel_requests.add(key)
            job.cancel()
            return True
        asking = self._asking.pop(key, None)
        if asking is None:
            return False
        asking.cancel("cancelled by user")
        self._unreported[run_id].append(task_id)
        return True

    def get(self, run_id: str, task_id: str) -> SubagentResult | None:
        """Return the current result of a task."""
        return self._results.get((run_id, task_id))

    def list(self, run_id: str | None = None) -> list[SubagentResult]:
        """Return the tasks of one run, or all, oldest first."""
        return [each for each in self._results.values() if run_id is None or each.run_id == run_id]

    def started(self, run_id: str) -> frozenset[str]:
        """Return the ids of all tasks that a run has started in this process."""
        return frozenset(self._started.get(run_id, ()))

    def cleanup(self, run_id: str) -> None:
        """Forget the tasks of a run that have ended or wait for an answer."""
        for result in self.list(run_id):
            if result.status.is_terminal or result.question is not None:
                del self._results[run_id, result.task_id]
                self._asking.pop((run_id, result.task_id), None)
        if not self.list(run_id):
            self._started.pop(run_id, None)
            self._unreported.pop(run_id, None)

    async def finish(self, run_id: str) -> None:
        """Cancel a run's background tasks and forget its tasks; called when the run ends."""
        jobs = [job for key, job in self._background.items() if key[0] == run_id]
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        self.cleanup(run_id)

    async def _execute_on_own_loop(self, task: TaskSpec) -> SubagentResult:
        try:
            return await self.execute(task)
        finally:
            if task.close_models is not None:  # the connections belong to this loop
                await task.close_models()

    def _start(self, task: TaskSpec) -> "Attempt":
        if task.key in self._jobs:
            raise ConflictError(f"task {task.task_id} is already running")
        self._asking.pop(task.key, None)
        self._started[task.context.run_id].add(task.task_id)
        attempt = self._attempts[task.key] = Attempt(task, on_change=self._keep)
        self._jobs[task.key] = asyncio.create_task(attempt.run(self._slots), context=contextvars.Context())
        return attempt

    async def _wait_for(self, attempt: "Attempt") -> SubagentResult:
        key = attempt.task.key
        try:
            await self._jobs[key]
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            is_requested = key in self._cancel_requests and not (caller and caller.cancelling())
            attempt.cancel("cancelled by user" if is_requested else "the run was stopped")
            if not is_requested:
                raise
        finally:
            self._jobs.pop(key, None)
            self._attempts.pop(key, None)
            self._cancel_requests.discard(key)
        if attempt.result.question is not None and attempt.task.is_background:
            self._asking[key] = attempt
        return attempt.result

    def _background_stopped(self, key: TaskKey) -> None:
        is_known = self._background.pop(key, None) is not None
        if is_known and key in self._results and self._results[key].status.is_terminal:
            self._unreported[key[0]].append(key[1])

    def _require(self, run_id: str, task_id: str) -> SubagentResult:
        result = self.get(run_id, task_id)
        if result is None:
            raise NotFoundError("task", task_id, known=[each.task_id for each in self.list(run_id)])
        return result

    def _keep(self, result: SubagentResult) -> None:
        """Store the current result of a task; above the limit, drop the oldest task that has ended.

        Background tasks stay until their run ends: their end may not have been reported yet.
        """
        self._results[result.run_id, result.task_id] = result
        if len(self._results) > MAX_KEPT_RESULTS:
            known = self._results.values()
            ended = next((each for each in known if each.status.is_terminal and not each.is_background), None)
            if ended is not None:
                del self._results[ended.run_id, ended.task_id]


class Attempt:
    """One execution of a task, from waiting for a slot to its result; publishes the task's events."""

    def __init__(self, task: TaskSpec, *, on_change: Callable[[SubagentResult], None]) -> None:
        self.task = task
        self.slot: TaskSlot | None = None
        self._on_change = on_change
        self.result = SubagentResult(
            task_id=task.task_id,
            trace_id=task.context.trace_id or new_id()[:8],
            run_id=task.context.run_id,
            description=task.description,
            subagent_type=task.config.name,
            model_name=task.model_name,
            parent_task_id=task.context.task_id,
            is_background=task.is_background,
        )
        # Captured here: the task runs in its own contextvars context, which does not have the caller's span.
        self._parent_span = task.context.watch.here()
        self._graph = GraphRunner(
            task,
            trace_id=self.result.trace_id,
            on_start=self._publish_start,
            on_message=self._publish_message,
            parent_span=self._parent_span,
        )
        self.inbox = self._graph.inbox
        """Messages that the sub-agent gets before its next step."""
        on_change(self.result)

    async def run(self, slots: FairSlots) -> None:
        """Wait for a slot, then run the agent until it ends, asks a question or reaches a limit."""
        task, context = self.task, self.task.context
        mark_logs(
            trace_id=self.result.trace_id,
            run_id=context.run_id,
            thread_id=context.thread_id,
            task_id=task.task_id,
        )
        with context.watch.task(task.config.name, task_id=task.task_id, below=self._parent_span) as seen:
            async with slots.slot(task.slot_owner) as self.slot:
                with context.watch.queueing():
                    await self.slot.acquire()
                with context.watch.working():
                    end = await self._run_graph()
                    text, file = await self._fitting_text(end) if end.question is None else ("", None)
            if end.question is not None:
                self._set(replace(self.result, question=end.question))
                self._publish("task_asking")
                seen.outcome = "asked"
                return
            await self._store_end()
            self._settle(end, text, file=file)
            seen.outcome = str(self.result.status)

    def cancel(self, error: str) -> None:
        """End a task that was cancelled from outside, with its findings so far."""
        findings = clip_to(self._graph.progress.findings(), self._max_result_tokens)
        self._settle(TaskEnd(SubagentStatus.CANCELLED, error), findings)

    async def _run_graph(self) -> TaskEnd:
        """Run the graph within the time limit, which begins with the slot; every error is an end."""
        seconds = self.task.config.timeout_seconds
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await self._graph.run()
        except TimeoutError as error:
            if limit.expired():
                return TaskEnd(SubagentStatus.TIMED_OUT, f"still working after {seconds:g} seconds")
            return TaskEnd(SubagentStatus.FAILED, str(error) or "a step took too long")  # raised by the agent
        except GraphRecursionError:
            return self._graph.end("turn_capped")
        except DeerFlowError as error:
            return TaskEnd(SubagentStatus.FAILED, str(error))
        except Exception as error:  # top level of the task: every error is reported to the lead agent
            logger.exception("task %s failed", self.result.task_id, extra=self._log_fields)
            return TaskEnd(SubagentStatus.FAILED, f"{type(error).__name__}: {error}")

    async def _fitting_text(self, end: TaskEnd) -> tuple[str, str | None]:
        """Return the result; one that is too long is summarized, and written in full to the returned file."""
        progress, max_tokens = self._graph.progress, self._max_result_tokens
        text = progress.final_text() if end.is_whole else progress.findings()
        if not is_too_long(text, max_tokens):
            return text, None
        file = await write_full_text(self.task.context.sandbox, self.task.name, text)
        summary = await self._summary(text, max_tokens)
        where = f"; the whole text is in {file}" if file else ""
        return f"{summary}\n\n[Summed up from about {estimate_tokens(text)} tokens{where}]", file

    async def _summary(self, text: str, max_tokens: int) -> str:
        if self.task.model is None:
            return clip_to(text, max_tokens)
        model = self.task.model()

        async def ask(prompt: str) -> str:
            answer = await model.ainvoke(prompt)
            self._graph.progress.add_usage(answer.usage_metadata or {})
            return answer.text

        try:
            async with asyncio.timeout(SUMMARY_SECONDS):
                return await condense(text, max_tokens=max_tokens, ask=ask)
        except Exception as error:  # any provider error: fall back to the beginning and the end
            logger.warning(
                "task %s: result not summarized: %s",
                self.result.task_id,
                error,
                extra=self._log_fields,
            )
            return clip_to(text, max_tokens)

    async def _store_end(self) -> None:
        """Store the end before it is published: a task whose end was published never runs again."""
        try:
            await self._graph.store_end()
        except DeerFlowError as error:
            logger.warning(
                "task %s: its end could not be stored: %s",
                self.result.task_id,
                error,
                extra=self._log_fields,
            )

    def _settle(self, end: TaskEnd, text: str, *, file: str | None = None) -> None:
        if self.result.status.is_terminal:
            return
        progress = self._graph.progress
        if self.result.status is SubagentStatus.PENDING and end.status is not SubagentStatus.CANCELLED:
            self._publish_start()  # every end event follows a start event
        self._set(
            self.result.becoming(
                end.status,
                result=text or None,
                error=end.error,
                stop_reason=end.stop_reason,
                completed_at=datetime.now(UTC),
                ai_messages=progress.answers,
                token_usage=progress.usage or {},
                result_file=file,
                answered=self._graph.answered,
                question=None,
            )
        )
        # Success is in the run's event log; at INFO, hundreds of tasks would hide the other log lines.
        level = logging.DEBUG if end.status is SubagentStatus.COMPLETED else logging.INFO
        logger.log(level, "task %s %s", self.result.task_id, end.status, extra=self._log_fields)
        outcome = {"result": text} if end.status is SubagentStatus.COMPLETED else {"error": end.error}
        self._publish(f"task_{end.status}", usage=progress.usage, **outcome)

    @property
    def _max_result_tokens(self) -> int:
        return self.task.context.settings.subagents.max_result_tokens

    @property
    def _log_fields(self) -> dict[str, str]:
        return {"trace_id": self.result.trace_id}

    def _set(self, result: SubagentResult) -> None:
        self.result = result
        self._on_change(result)

    def _publish_start(self) -> None:
        self._set(self.result.becoming(SubagentStatus.RUNNING, started_at=datetime.now(UTC)))
        logger.debug("task %s started", self.result.task_id, extra=self._log_fields)
        self._publish(
            "task_started",
            description=self.task.description,
            subagent_type=self.task.config.name,
            background=self.task.is_background,
            # A task that was resumed in another run: that run's readers have not received these messages.
            **({"messages": known} if (known := self._graph.progress.messages) else {}),
        )

    def _publish_message(self, message: AnyMessage) -> None:
        progress = self._graph.progress
        count = len(progress.messages)
        self._publish(
            "task_running",
            message=message,
            message_index=count,
            total_messages=count,
            usage=progress.usage,
        )

    def _publish(self, kind: str, **payload: Any) -> None:
        event = {"type": kind, "task_id": self.task.task_id, **payload, "model_name": self.task.model_name}
        if self.task.context.task_id is not None:
            event["parent_task_id"] = self.task.context.task_id
        self.task.context.publish(event)
