"""Execute one task, from waiting for a slot to its result, and publish its events."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from langchain_core.messages import AnyMessage
from langgraph.errors import GraphRecursionError

from deerflow.domain import new_id
from deerflow.errors import DeerFlowError
from deerflow.observability.logs import mark_logs
from deerflow.observability.watch import Watch
from deerflow.subagents.company import Company
from deerflow.subagents.condense import clip_to, condense, estimate_tokens, is_too_long, keep_whole
from deerflow.subagents.config import SubagentResult, SubagentStatus
from deerflow.subagents.gate import FairGate, Place
from deerflow.subagents.graph_runner import Drive, End
from deerflow.subagents.task import SubagentTask

logger = logging.getLogger(__name__)

SUMMARY_SECONDS = 120


class Attempt:
    """One execution of a task: its progress, its current result and its events."""

    def __init__(self, task: SubagentTask, remember: Callable[[SubagentResult], None]) -> None:
        self.task = task
        self.place: Place | None = None
        """Its slot, held or requested; None before `run`."""
        self._counted = ExitStack()
        """Counts the task in the gauge of queued tasks, then in that of running tasks."""
        self._limit = asyncio.timeout(None)
        """Its time limit, which runs only while it holds a slot."""
        self._seconds_left = task.config.timeout_seconds
        self._remember = remember
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
        self._started_at = task.context.watch.here()
        self._drive = Drive(
            task,
            trace_id=self.result.trace_id,
            on_message=self._tell,
            enter=self.enter,
            started_at=self._started_at,
        )
        remember(self.result)

    @property
    def _trace(self) -> dict[str, str]:
        return {"trace_id": self.result.trace_id}

    @property
    def inbox(self) -> list[str]:
        """Messages that the sub-agent gets before its next step."""
        return self._drive.inbox

    async def run(self, gate: FairGate, company: Company) -> None:
        """Queue for a slot, then run the agent until it ends, asks a question or reaches a limit."""
        if self.task.is_background:
            await self._watched(gate)
            return
        async with company.of(self.task.caller, told=self._told):
            await self._watched(gate)

    async def _told(self) -> None:
        with contextlib.suppress(DeerFlowError):  # the run's event log reports it and retries
            await self.task.context.told()

    async def _watched(self, gate: FairGate) -> None:
        context = self.task.context
        ids = {"run_id": context.run_id, "thread_id": context.thread_id, "task_id": self.task.task_id}
        mark_logs(trace_id=self.result.trace_id, **ids)
        watched = context.watch.task(self.task.config.name, task_id=self.task.task_id, below=self._started_at)
        with watched as seen:
            await self._run(gate, context.watch)
            is_asking = self.result.question is not None
            seen.outcome = "asked" if is_asking else str(self.result.status)

    async def _run(self, gate: FairGate, watch: Watch) -> None:
        async with gate.line(self.task.holder) as self.place:
            with self._counted:
                self._counted.enter_context(watch.queueing())
                await self.place.get_ready()
                end = await self._driven()
                if self.result.status is SubagentStatus.PENDING:
                    self._begin()  # every end event follows a start event
                if end.question is not None:
                    self.result = replace(self.result, question=end.question)
                    self._remember(self.result)
                    self._publish("task_asking")
                else:
                    await self._settle_fitting(end, gate)

    async def enter(self) -> None:
        """Wait for the slot; the first time, start the task."""
        if self.place is not None:
            await self.place.take()
        if self._limit.when() is None:
            self._limit.reschedule(asyncio.get_running_loop().time() + self._seconds_left)
        if self.result.status is SubagentStatus.PENDING:
            self._begin()

    async def leave(self, gate: FairGate) -> None:
        """Release the slot and let queued tasks start; the time limit pauses without a slot."""
        until = self._limit.when()
        if self.place is None or not self.place.is_held or until is None:
            return
        self._seconds_left = until - asyncio.get_running_loop().time()
        self._limit.reschedule(None)
        self.place.give_back()
        await gate.let_others_begin(self.task.holder)

    def _begin(self) -> None:
        self._counted.close()
        self._counted.enter_context(self.task.context.watch.working())
        self._set(SubagentStatus.RUNNING, started_at=datetime.now(UTC))
        logger.debug("task %s started", self.result.task_id, extra=self._trace)
        self._publish(
            "task_started",
            description=self.task.description,
            subagent_type=self.task.config.name,
            background=self.task.is_background,
            # A task that was resumed in another run: that run's readers have not received these messages.
            **({"messages": said} if (said := self._drive.progress.messages) else {}),
        )

    async def _driven(self) -> End:
        seconds = self.task.config.timeout_seconds
        try:
            async with self._limit:
                return await self._drive.run()
        except TimeoutError as error:
            if self._limit.expired():
                return End(SubagentStatus.TIMED_OUT, f"still working after {seconds:g} seconds")
            return End(SubagentStatus.FAILED, str(error) or "a step took too long")  # raised inside the agent
        except GraphRecursionError:
            return self._drive.ended("turn_capped")
        except DeerFlowError as error:
            return End(SubagentStatus.FAILED, str(error))
        except Exception as error:  # top level of the task: every error is reported to the lead agent
            logger.exception("task %s failed", self.result.task_id, extra=self._trace)
            return End(SubagentStatus.FAILED, f"{type(error).__name__}: {error}")

    async def _settle_fitting(self, end: End, gate: FairGate) -> None:
        """End the task; a result that is too long is summarized, and written in full to a file."""
        progress = self._drive.progress
        text = progress.final_text() if end.is_whole else progress.findings()
        max_tokens = self.task.context.settings.subagents.max_result_tokens
        file = None
        if is_too_long(text, max_tokens):
            if self.place is not None:
                await self.place.take()
            file = await keep_whole(self.task.context.sandbox, self.task.name, text)
            shorter = await self._summary(text, max_tokens)
            where = f"; the whole text is in {file}" if file else ""
            text = f"{shorter}\n\n[Summed up from about {estimate_tokens(text)} tokens{where}]"
        if self.place is not None and self.place.is_held:
            self.place.give_back()
            await gate.let_others_begin(self.task.holder)
        await self._keep()
        self._settle(end, text, file=file)

    async def _keep(self) -> None:
        """Store the end before it is published: a task whose end was published never runs again."""
        try:
            await self._drive.keep()
        except DeerFlowError as error:
            logger.warning("task %s: its end could not be stored: %s", self.result.task_id, error)

    async def _summary(self, text: str, max_tokens: int) -> str:
        if self.task.model is None:
            return clip_to(text, max_tokens)
        model = self.task.model()

        async def ask(prompt: str) -> str:
            answer = await model.ainvoke(prompt)
            self._drive.progress.spend(answer.usage_metadata or {})
            return answer.text

        try:
            async with asyncio.timeout(SUMMARY_SECONDS):
                return await condense(text, max_tokens=max_tokens, ask=ask)
        except Exception as error:  # any provider error: fall back to the beginning and the end
            logger.warning(
                "task %s: result not summed up, trace %s: %s",
                self.result.task_id,
                self.result.trace_id,
                error,
            )
            return clip_to(text, max_tokens)

    def cancel(self, error: str) -> None:
        """End a task that was cancelled from outside, with its findings so far."""
        limit = self.task.context.settings.subagents.max_result_tokens
        self._settle(End(SubagentStatus.CANCELLED, error), clip_to(self._drive.progress.findings(), limit))

    def _settle(self, end: End, text: str, *, file: str | None = None) -> None:
        if self.result.status.is_terminal:
            return
        progress = self._drive.progress
        self._set(
            end.status,
            result=text or None,
            error=end.error,
            stop_reason=end.stop_reason,
            completed_at=datetime.now(UTC),
            ai_messages=progress.answers,
            token_usage=progress.usage or {},
            result_file=file,
            answered=self._drive.answered,
            question=None,
        )
        # Success is in the run's event log; at INFO, hundreds of tasks would hide the other log lines.
        level = logging.DEBUG if end.status is SubagentStatus.COMPLETED else logging.INFO
        logger.log(level, "task %s %s", self.result.task_id, end.status, extra=self._trace)
        outcome = {"result": text} if end.status is SubagentStatus.COMPLETED else {"error": end.error}
        self._publish(f"task_{end.status}", usage=progress.usage, **outcome)

    def _tell(self, message: AnyMessage) -> None:
        progress = self._drive.progress
        self._publish(
            "task_running",
            message=message,
            message_index=progress.count,
            total_messages=progress.count,
            usage=progress.usage,
        )

    def _set(self, status: SubagentStatus, **changes: Any) -> None:
        self.result = self.result.becoming(status, **changes)
        self._remember(self.result)

    def _publish(self, kind: str, **payload: Any) -> None:
        event = {"type": kind, "task_id": self.task.task_id, **payload, "model_name": self.task.model_name}
        if self.task.context.task_id is not None:
            event["parent_task_id"] = self.task.context.task_id
        self.task.context.publish(event)
