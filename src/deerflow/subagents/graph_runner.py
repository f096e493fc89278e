"""Run the graph of one task from its input, or from the checkpoint of an earlier attempt, to an end.

A task is an agent on its own checkpoint thread, `{thread}/{task}`. When the process dies, the lead agent's
call is executed again and the task continues from its last checkpoint; a finished task returns at once.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, cast

from langchain_core.messages import AIMessageChunk, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.types import Command, Interrupt

from deerflow.agents.first_answer import FirstAnswer
from deerflow.agents.langgraph_beta import MODEL_NODE, keep_ended
from deerflow.config.tokens import TokenBudgetSettings
from deerflow.context import RunContext
from deerflow.domain import new_id
from deerflow.observability.watch import Where
from deerflow.subagents.config import Question, StopReason, SubagentStatus
from deerflow.subagents.progress import Progress
from deerflow.subagents.task import SubagentTask

RESUMED = "__resume__"
"""The channel in which LangGraph stores the resume values of a step."""


@dataclass(frozen=True, slots=True)
class End:
    """How the execution of a task stopped."""

    status: SubagentStatus
    error: str | None = None
    stop_reason: StopReason | None = None
    question: Question | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the task completed without reaching a limit: its last answer is the result."""
        return self.status is SubagentStatus.COMPLETED and self.error is None


class Drive:
    """One execution of a task's graph."""

    def __init__(
        self,
        task: SubagentTask,
        *,
        trace_id: str,
        on_message: Callable[[AnyMessage], None],
        enter: Callable[[], Awaitable[None]],
        started_at: Where | None = None,
    ) -> None:
        """Prepare the execution.

        Args:
            enter: Waits for the task's slot; called before anything that needs one.
            started_at: The parent of the execution's spans and traces.
        """
        self._task = task
        self._started_at = started_at
        self._trace_id = trace_id
        self._on_message = on_message
        self._enter = enter
        self._answers = 0
        self._asked: tuple[Interrupt, ...] = ()
        self._is_warned = False
        self._unstored: Sequence[AnyMessage] = ()
        self.progress = Progress()
        self.inbox: list[str] = []
        """Messages that the sub-agent gets before its next step."""

    @property
    def answered(self) -> int:
        """Number of the task's questions that were answered."""
        return self._answers

    async def keep(self) -> None:
        """Store an end reached without the graph: if the result is lost, the task returns it from here."""
        saver = self._task.agent.graph.checkpointer
        if self._unstored and isinstance(saver, BaseCheckpointSaver):
            await keep_ended(saver, self._config(), self._unstored)
        self._unstored = ()

    async def run(self) -> End:
        """Run until the agent ends, reaches a limit or asks a question."""
        saved = await self._saved()
        if saved is not None:
            return await self._go_on(saved)
        question = HumanMessage(self._task.prompt, id=new_id())
        if self._task.agent.opening is None:
            return await self._stream({"messages": [question]})
        return await self._open(self._task.agent.opening, question)

    async def _open(self, opening: FirstAnswer, question: HumanMessage) -> End:
        """Get the first answer without the graph; only an answer that calls tools needs the graph.

        Until then nothing is stored: the task's prompt is in the conversation of its parent.
        """
        config = self._config()
        if not self._task.agent.waits_inside:
            await self._enter()
        written = await opening.answer(
            [question], context=self._inside, config=config, hear=self.progress.hear
        )
        messages = written["messages"] = [question, *written["messages"]]
        self._take_up(messages)
        if self.progress.wants_tools:
            await self._task.agent.graph.aupdate_state(config, written, as_node=MODEL_NODE)
            capped = self._limit_reached()
            return await self._stream(None) if capped is None else self.ended(capped)
        self._unstored = messages
        return self.ended(None)

    async def _go_on(self, saved: CheckpointTuple) -> End:
        head = await self._task.agent.graph.aget_state(self._config())
        self.progress = Progress(head.values.get("messages", ()))
        await self._enter()  # after `progress` is set: the start event has the messages so far
        self._answers = _answers(saved)
        self._asked = head.interrupts
        if self._asked and self._task.resume is None:
            return self._question()
        # Not `next`: it is empty for a step whose writes are stored but not yet applied by the next step.
        return await self._stream(self._resumed()) if head.tasks else self.ended(None)

    def ended(self, capped: StopReason | None) -> End:
        """Return how an execution ended: at a limit, or when `capped` is None by itself."""
        if capped is None and not self.progress.wants_tools:
            return End(SubagentStatus.COMPLETED)
        if capped is None:
            return End(SubagentStatus.FAILED, "stopped before its work was done")
        limit = f"{self._task.config.max_turns} turns" if capped == "turn_capped" else "tokens"
        # The findings of a task stopped at a limit count as its result; without findings it has failed.
        found = self.progress.final_text()
        status = SubagentStatus.COMPLETED if found else SubagentStatus.FAILED
        return End(status, f"stopped at its limit of {limit}", capped)

    async def _stream(self, values: Any) -> End:
        await self._enter()
        stream = self._task.agent.graph.astream(
            values,
            self._config(),
            context=self._inside,
            stream_mode=["updates", "messages"],  # `messages`: keeps the tokens of an unfinished answer
        )
        capped: StopReason | None = None
        self._asked = ()
        async with aclosing(cast("AsyncGenerator[tuple[str, Any]]", stream)) as chunks:
            async for mode, chunk in chunks:
                self._take(mode, chunk)
                capped = self._limit_reached() if mode == "updates" else None
                if capped is not None:
                    break
        if not self._asked:
            return self.ended(capped)
        # The stream yields interrupts in the order they occur, the state in the order of the tool calls.
        self._asked = (await self._task.agent.graph.aget_state(self._config())).interrupts
        return self._question()

    def _take(self, mode: str, chunk: Any) -> None:
        """Record a chunk and report each new message; those repeated from the checkpoint are known."""
        if mode == "messages":
            message, _ = chunk
            if isinstance(message, AIMessageChunk):
                self.progress.hear(message.text)
            return
        self._asked += tuple(chunk.get("__interrupt__", ()))
        self._take_up(_written(chunk))

    def _take_up(self, messages: Iterable[AnyMessage]) -> None:
        for message in messages:
            if self.progress.add(message):
                self._on_message(message)

    @property
    def _inside(self) -> RunContext:
        """The context of the sub-agent and its tools."""
        outside = self._task.context
        return replace(outside, task_id=self._task.task_id, depth=outside.depth + 1, trace_id=self._trace_id)

    def _limit_reached(self) -> StopReason | None:
        if not self.progress.wants_tools:
            return None
        if self.progress.turns >= self._task.config.max_turns:
            return "turn_capped"
        budget = self._task.config.token_budget
        share = spent_share(self.progress.usage, budget) if budget is not None and budget.enabled else 0.0
        if budget is not None and share >= budget.hard_stop_threshold:
            return "token_capped"
        if budget is not None and share >= budget.warn_threshold and not self._is_warned:
            self._is_warned = True
            self.inbox.append(
                f"You have used {share:.0%} of your tokens. Finish now: report what you have found."
            )
        return None

    def _question(self) -> End:
        """Return the first question: one at a time, so that answers cannot be mixed up."""
        return End(SubagentStatus.RUNNING, question=Question(self._asked[0].value, self._answers))

    def _resumed(self) -> Command[Any] | None:
        """Return the command that answers the first interrupt; the others are raised again."""
        if self._task.resume is None or not self._asked:
            return None
        self._answers += 1
        return Command(resume={self._asked[0].id: self._task.resume.answer})

    async def _saved(self) -> CheckpointTuple | None:
        """Return the last checkpoint of an earlier attempt; None when there was none."""
        saver = self._task.agent.graph.checkpointer
        return await saver.aget_tuple(self._config()) if isinstance(saver, BaseCheckpointSaver) else None

    def _config(self) -> RunnableConfig:
        config = self._task.run_config(trace_id=self._trace_id, answers=self._answers)
        if self._started_at is not None and self._started_at.callbacks is not None:
            config["callbacks"] = self._started_at.callbacks
        return config


def spent_share(usage: dict[str, int] | None, budget: TokenBudgetSettings) -> float:
    """Return the used share of a budget: the largest of its total, input and output shares."""
    if not usage:
        return 0.0
    parts = (
        (usage["total_tokens"], budget.max_tokens),
        (usage["input_tokens"], budget.max_input_tokens),
        (usage["output_tokens"], budget.max_output_tokens),
    )
    return max(spent / most for spent, most in parts if most is not None)


def _answers(saved: CheckpointTuple) -> int:
    """Return how many questions were answered: before this checkpoint, and in its pending writes."""
    given = {task: len(value) for task, channel, value in saved.pending_writes or () if channel == RESUMED}
    metadata = cast("dict[str, Any]", saved.metadata)
    return int(metadata.get("answers") or 0) + sum(given.values())


def _written(update: dict[str, Any]) -> list[AnyMessage]:
    """Return the messages that a step wrote."""
    parts = (
        part for written in update.values() for part in (written if isinstance(written, list) else [written])
    )
    return [message for part in parts if isinstance(part, dict) for message in part.get("messages", ())]
