"""Runs tasks: at once, within limits, cancellable, and with everything they found kept.

A task is an agent on a checkpoint thread of its own, `{thread}/{task}`. It runs on the run's loop but in an
empty context, so that its tokens stay out of the lead agent's stream. When the process dies, the lead
agent's call is made again and the task goes on from its last checkpoint; a finished one answers at once.
"""

import asyncio
import contextvars
import logging
from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphRecursionError

from deerflow.agents import Agent
from deerflow.context import RunContext
from deerflow.domain import new_id
from deerflow.errors import DeerFlowError
from deerflow.subagents.config import SubagentConfig, SubagentResult, SubagentStatus
from deerflow.subagents.gate import FairGate
from deerflow.subagents.progress import Progress

logger = logging.getLogger(__name__)

MAX_KEPT_RESULTS = 1000
STEPS_PER_TURN = 2


@dataclass(frozen=True, slots=True)
class SubagentTask:
    """One piece of delegated work, with the agent that does it."""

    task_id: str
    """The id of the `task` call."""
    thread_id: str
    """The task's own checkpoint thread."""
    config: SubagentConfig
    description: str
    prompt: str
    model_name: str | None
    agent: Agent
    context: RunContext
    """The lead agent's."""


class SubagentExecutor:
    """All tasks of this process."""

    def __init__(self, *, max_running: int) -> None:
        self._gate = FairGate(max_running)
        self._jobs: dict[str, asyncio.Task[Any]] = {}
        self._cancel_wishes: set[str] = set()
        self._results: OrderedDict[str, SubagentResult] = OrderedDict()

    async def execute(self, task: SubagentTask) -> SubagentResult:
        """Run a task to its end, whatever the end is; only cancelling the caller raises."""
        attempt = _Attempt(task, self)
        self.remember(attempt.result)
        job = asyncio.create_task(attempt.run(self._gate), context=contextvars.Context())
        self._jobs[task.task_id] = job
        try:
            await job
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            is_wish = task.task_id in self._cancel_wishes and not (caller and caller.cancelling())
            attempt.settle(
                SubagentStatus.CANCELLED, error="cancelled by user" if is_wish else "the run was stopped"
            )
            if not is_wish:
                raise
        finally:
            self._jobs.pop(task.task_id, None)
            self._cancel_wishes.discard(task.task_id)
        return attempt.result

    def request_cancel(self, task_id: str) -> bool:
        """Stop a task at once, with the tool it is in; tells whether there was one to stop."""
        job = self._jobs.get(task_id)
        if job is None or job.done():
            return False
        self._cancel_wishes.add(task_id)
        job.cancel()
        return True

    def get(self, task_id: str) -> SubagentResult | None:
        """Return what is known of a task."""
        return self._results.get(task_id)

    def list(self, run_id: str | None = None) -> list[SubagentResult]:
        """Return the tasks of one run, or all, oldest first."""
        return [each for each in self._results.values() if run_id is None or each.run_id == run_id]

    def cleanup(self, run_id: str) -> None:
        """Forget the tasks of a run that have ended."""
        for result in self.list(run_id):
            if result.status.is_terminal:
                del self._results[result.task_id]

    def remember(self, result: SubagentResult) -> None:
        """Keep the latest word on a task; the oldest ended ones go first when there are too many."""
        self._results[result.task_id] = result
        if len(self._results) > MAX_KEPT_RESULTS:
            ended = next((each for each in self._results.values() if each.status.is_terminal), None)
            if ended is not None:
                del self._results[ended.task_id]


class _Attempt:
    """One execution of a task: its progress, its result so far and its events."""

    def __init__(self, task: SubagentTask, executor: SubagentExecutor) -> None:
        self._task = task
        self._executor = executor
        self._progress = Progress()
        self.result = SubagentResult(
            task_id=task.task_id,
            trace_id=task.context.trace_id or new_id()[:8],
            run_id=task.context.run_id,
            description=task.description,
            subagent_type=task.config.name,
            model_name=task.model_name,
        )

    async def run(self, gate: FairGate) -> None:
        """Wait for a place, then drive the agent until it is done or a limit is reached."""
        async with gate.place(self._task.context.run_id):
            self._set(SubagentStatus.RUNNING, started_at=datetime.now(UTC))
            self._publish("task_started", description=self._task.description)
            seconds = self._task.config.timeout_seconds
            try:
                async with asyncio.timeout(seconds):
                    await self._drive()
            except TimeoutError:
                self.settle(SubagentStatus.TIMED_OUT, error=f"still working after {seconds:g} seconds")
            except GraphRecursionError:
                self._finish(is_capped=True)
            except DeerFlowError as error:
                self.settle(SubagentStatus.FAILED, error=str(error))
            except Exception as error:  # the task's root: the lead agent is told, whatever went wrong
                logger.exception("task %s failed, trace %s", self.result.task_id, self.result.trace_id)
                self.settle(SubagentStatus.FAILED, error=f"{type(error).__name__}: {error}")

    async def _drive(self) -> None:
        task = self._task
        config = self._config()
        head = await task.agent.aget_state(config) if task.agent.checkpointer else None
        is_known = head is not None and (bool(head.next) or bool(head.values))
        if head is not None and is_known:
            self._progress = Progress(head.values.get("messages", ()))
            if not head.next:
                return self._finish()
        first = None if is_known else {"messages": [HumanMessage(task.prompt, id=new_id())]}
        context = replace(task.context, task_id=task.task_id)
        stream = task.agent.astream(first, config, context=context, stream_mode="updates")
        is_capped = False
        async for update in stream:
            self._take(update)
            if self._progress.turns >= task.config.max_turns and self._progress.wants_tools:
                is_capped = True
                break
        await stream.aclose()  # type: ignore[attr-defined]  # an async generator in all but its annotation
        return self._finish(is_capped=is_capped)

    def _config(self) -> RunnableConfig:
        return {
            "configurable": {"thread_id": self._task.thread_id},
            # A net below the count of turns, which also knows of turns before a restart.
            "recursion_limit": STEPS_PER_TURN * self._task.config.max_turns + STEPS_PER_TURN,
            "metadata": {"task_id": self._task.task_id, "trace_id": self.result.trace_id},
        }

    def _take(self, update: dict[str, Any]) -> None:
        """Publish each new message; what a restart repeats from the checkpoint is known already."""
        for written in update.values():
            for message in written.get("messages", ()) if isinstance(written, dict) else ():
                if self._progress.add(message):
                    self._publish(
                        "task_running",
                        message=message,
                        message_index=self._progress.count,
                        total_messages=self._progress.count,
                        usage=self._progress.usage,
                    )

    def _finish(self, *, is_capped: bool = False) -> None:
        text = self._progress.final_text()
        if not is_capped and not self._progress.wants_tools:
            return self.settle(SubagentStatus.COMPLETED)
        if not is_capped:
            return self.settle(SubagentStatus.FAILED, error="stopped before its work was done")
        error = f"stopped at its limit of {self._task.config.max_turns} turns"
        # What a capped task found still counts as a result; one that found nothing has failed.
        status = SubagentStatus.COMPLETED if text else SubagentStatus.FAILED
        return self.settle(status, error=error, stop_reason="turn_capped")

    def settle(self, status: SubagentStatus, **changes: Any) -> None:
        """End the task with all that was found, once."""
        if self.result.status.is_terminal:
            return
        is_done = status is SubagentStatus.COMPLETED and "error" not in changes
        text = self._progress.final_text() if is_done else self._progress.findings()
        self._set(
            status,
            result=text or None,
            completed_at=datetime.now(UTC),
            ai_messages=self._progress.answers,
            token_usage=self._progress.usage or {},
            **changes,
        )
        logger.info("task %s %s, trace %s", self.result.task_id, status, self.result.trace_id)
        outcome = {"result": text} if status is SubagentStatus.COMPLETED else {"error": self.result.error}
        self._publish(f"task_{status}", usage=self._progress.usage, **outcome)

    def _set(self, status: SubagentStatus, **changes: Any) -> None:
        self.result = self.result.becoming(status, **changes)
        self._executor.remember(self.result)

    def _publish(self, kind: str, **payload: Any) -> None:
        event = {"type": kind, "task_id": self._task.task_id, **payload, "model_name": self._task.model_name}
        self._task.context.publish(event)
