"""One execution of a task, from its place at the gate to its result.

A task is an agent on a checkpoint thread of its own, `{thread}/{task}`. It runs on the run's loop but in an
empty context, so that its tokens stay out of the lead agent's stream. When the process dies, the lead
agent's call is made again and the task goes on from its last checkpoint; a finished one answers at once.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, cast

from langchain_core.messages import AIMessageChunk, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphRecursionError
from langgraph.types import StateSnapshot

from deerflow.agents import Agent
from deerflow.context import RunContext
from deerflow.domain import new_id
from deerflow.errors import DeerFlowError
from deerflow.subagents.config import SubagentConfig, SubagentResult, SubagentStatus
from deerflow.subagents.gate import FairGate
from deerflow.subagents.progress import Progress

logger = logging.getLogger(__name__)

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


class Attempt:
    """A task at work: its progress, its result so far and its events."""

    def __init__(self, task: SubagentTask, remember: Callable[[SubagentResult], None]) -> None:
        self._task = task
        self._remember = remember
        self._progress = Progress()
        self.result = SubagentResult(
            task_id=task.task_id,
            trace_id=task.context.trace_id or new_id()[:8],
            run_id=task.context.run_id,
            description=task.description,
            subagent_type=task.config.name,
            model_name=task.model_name,
        )
        remember(self.result)

    async def run(self, gate: FairGate) -> None:
        """Wait for a place, then drive the agent until it is done or a limit is reached."""
        async with gate.place(self._task.context.run_id):
            self._set(SubagentStatus.RUNNING, started_at=datetime.now(UTC))
            self._publish("task_started", description=self._task.description)
            seconds = self._task.config.timeout_seconds
            try:
                async with asyncio.timeout(seconds) as limit:
                    await self._drive()
            except TimeoutError as error:
                if limit.expired():
                    self.settle(SubagentStatus.TIMED_OUT, error=f"still working after {seconds:g} seconds")
                else:  # something inside had a time limit of its own
                    self.settle(SubagentStatus.FAILED, error=str(error) or "a step took too long")
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
        head = await _head(task.agent, config)
        if head is not None:
            self._progress = Progress(head.values.get("messages", ()))
            if not head.next:
                return self._finish()
        first = None if head else {"messages": [HumanMessage(task.prompt, id=new_id())]}
        stream = task.agent.astream(
            first,
            config,
            context=replace(task.context, task_id=task.task_id),
            stream_mode=["updates", "messages"],  # with tokens, a cut answer is kept as far as it went
        )
        is_capped = False
        async with aclosing(cast("AsyncGenerator[tuple[str, Any]]", stream)) as chunks:
            async for mode, chunk in chunks:
                self._take(mode, chunk)
                is_capped = self._progress.turns >= task.config.max_turns and self._progress.wants_tools
                if is_capped:
                    break
        return self._finish(is_capped=is_capped)

    def _config(self) -> RunnableConfig:
        return {
            "configurable": {"thread_id": self._task.thread_id},
            # A net below the count of turns, which also knows of turns before a restart.
            "recursion_limit": STEPS_PER_TURN * self._task.config.max_turns + STEPS_PER_TURN,
            "metadata": {"task_id": self._task.task_id, "trace_id": self.result.trace_id},
        }

    def _take(self, mode: str, chunk: Any) -> None:
        """Publish each new message; what a restart repeats from the checkpoint is known already."""
        if mode == "messages":
            message, _ = chunk
            if isinstance(message, AIMessageChunk):
                self._progress.hear(message.text)
            return
        for message in _written(chunk):
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
        self._remember(self.result)

    def _publish(self, kind: str, **payload: Any) -> None:
        event = {"type": kind, "task_id": self._task.task_id, **payload, "model_name": self._task.model_name}
        self._task.context.publish(event)


async def _head(agent: Agent, config: RunnableConfig) -> StateSnapshot | None:
    """Return where an earlier attempt at the task stopped; None when there was none."""
    saver = agent.checkpointer
    if not isinstance(saver, BaseCheckpointSaver) or await saver.aget_tuple(config) is None:
        return None
    return await agent.aget_state(config)


def _written(update: dict[str, Any]) -> list[AnyMessage]:
    """Return the messages that a step wrote."""
    parts = (
        part for written in update.values() for part in (written if isinstance(written, list) else [written])
    )
    return [message for part in parts if isinstance(part, dict) for message in part.get("messages", ())]
