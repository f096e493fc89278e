"""Run the graph of one task from its input, or from the checkpoint of an earlier attempt, to an end.

A task is an agent on its own checkpoint thread, `{thread}/{task}`. When the process dies, the lead agent's
call is executed again and the task continues from its last checkpoint; a finished task returns at once.
"""

import hashlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, cast

from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.types import Command, Interrupt

from deerflow.agents.first_answer import FirstAnswer
from deerflow.agents.langgraph_beta import MODEL_NODE, store_ended
from deerflow.config.models import TokenBudgetSettings
from deerflow.context import RunContext
from deerflow.domain import new_id
from deerflow.observability.watch import Where
from deerflow.subagents.config import StopReason, SubagentStatus, TaskQuestion, TaskSpec

STEPS_PER_TURN = 2
RESUME_CHANNEL = "__resume__"
"""The channel in which LangGraph stores the resume values of a step."""
MAX_TOOL_CHARS = 2000
MAX_TOOL_RESULTS = 5
USAGE_KEYS = ("input_tokens", "output_tokens", "total_tokens")


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """How the execution of a task stopped."""

    status: SubagentStatus
    error: str | None = None
    stop_reason: StopReason | None = None
    question: TaskQuestion | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the task completed without reaching a limit: its last answer is the result."""
        return self.status is SubagentStatus.COMPLETED and self.error is None


class GraphRunner:
    """One execution of a task's graph."""

    def __init__(
        self,
        task: TaskSpec,
        *,
        trace_id: str,
        on_start: Callable[[], None],
        on_message: Callable[[AnyMessage], None],
        parent_span: Where | None = None,
    ) -> None:
        """Prepare the execution.

        Args:
            on_start: Called once the messages of an earlier attempt are in `progress`.
            parent_span: The parent of the execution's spans and traces.
        """
        self._task = task
        self._parent_span = parent_span
        self._trace_id = trace_id
        self._on_start = on_start
        self._on_message = on_message
        self._interrupts: tuple[Interrupt, ...] = ()
        self._is_warned = False
        self._unstored: Sequence[AnyMessage] = ()
        self.answered = 0
        """Number of the task's questions that were answered."""
        self.progress = TaskProgress()
        self.inbox: list[str] = []
        """Messages that the sub-agent gets before its next step."""

    async def store_end(self) -> None:
        """Store an end reached without the graph: if the result is lost, the task returns it from here."""
        saver = self._task.agent.graph.checkpointer
        if self._unstored and isinstance(saver, BaseCheckpointSaver):
            await store_ended(saver, self._config(), self._unstored)
        self._unstored = ()

    async def run(self) -> TaskEnd:
        """Run until the agent ends, reaches a limit or asks a question."""
        saver = self._task.agent.graph.checkpointer
        if isinstance(saver, BaseCheckpointSaver):
            saved = await saver.aget_tuple(self._config())
            if saved is not None:
                return await self._resume(saved)
        self._on_start()
        prompt = HumanMessage(self._task.prompt, id=new_id())
        if self._task.agent.first_answer is None:
            return await self._stream({"messages": [prompt]})
        return await self._run_from_first_answer(self._task.agent.first_answer, prompt)

    async def _run_from_first_answer(self, first_answer: FirstAnswer, prompt: HumanMessage) -> TaskEnd:
        """Get the first answer without the graph; only an answer that calls tools needs the graph.

        Until then nothing is stored: the task's prompt is in the conversation of its parent.
        """
        config = self._config()
        update = await first_answer.answer(
            [prompt], context=self._context, config=config, on_text=self.progress.add_text
        )
        messages = update["messages"] = [prompt, *update["messages"]]
        self._add(messages)
        if self.progress.wants_tools:
            await self._task.agent.graph.aupdate_state(config, update, as_node=MODEL_NODE)
            reached = self._limit_reached()
            return await self._stream(None) if reached is None else self.end(reached)
        self._unstored = messages
        return self.end(None)

    async def _resume(self, saved: CheckpointTuple) -> TaskEnd:
        """Continue from the checkpoint of an earlier attempt, with a person's answer if there is one."""
        head = await self._task.agent.graph.aget_state(self._config())
        self.progress = TaskProgress(head.values.get("messages", ()))
        self._on_start()
        self.answered = _answered_in(saved)
        self._interrupts = head.interrupts
        if not self._interrupts:
            # Not `next`: it is empty for a step whose writes are stored but not yet applied by the next step.
            return await self._stream(None) if head.tasks else self.end(None)
        if self._task.resume is None:
            return self._question()
        self.answered += 1
        # Only the first interrupt is answered; the others are raised again.
        return await self._stream(Command(resume={self._interrupts[0].id: self._task.resume.value}))

    def end(self, reached: StopReason | None) -> TaskEnd:
        """Return how an execution ended: at a limit, or when `reached` is None by itself."""
        if reached is None and not self.progress.wants_tools:
            return TaskEnd(SubagentStatus.COMPLETED)
        if reached is None:
            return TaskEnd(SubagentStatus.FAILED, "stopped before its work was done")
        limit = f"{self._task.config.max_turns} turns" if reached == "turn_capped" else "tokens"
        # The findings of a task stopped at a limit count as its result; without findings it has failed.
        status = SubagentStatus.COMPLETED if self.progress.final_text() else SubagentStatus.FAILED
        return TaskEnd(status, f"stopped at its limit of {limit}", reached)

    async def _stream(self, values: Any) -> TaskEnd:
        stream = self._task.agent.graph.astream(
            values,
            self._config(),
            context=self._context,
            stream_mode=["updates", "messages"],  # `messages`: keeps the tokens of an unfinished answer
        )
        reached: StopReason | None = None
        self._interrupts = ()
        async with aclosing(cast("AsyncGenerator[tuple[str, Any]]", stream)) as chunks:
            async for mode, chunk in chunks:
                if mode == "messages":
                    if isinstance(chunk[0], AIMessageChunk):
                        self.progress.add_text(chunk[0].text)
                    continue
                self._interrupts += tuple(chunk.get("__interrupt__", ()))
                self._add(_messages_in(chunk))
                reached = self._limit_reached()
                if reached is not None:
                    break
        if not self._interrupts:
            return self.end(reached)
        # The stream yields interrupts in the order they occur, the state in the order of the tool calls.
        self._interrupts = (await self._task.agent.graph.aget_state(self._config())).interrupts
        return self._question()

    def _add(self, messages: Iterable[AnyMessage]) -> None:
        """Record messages and report each new one; those repeated from the checkpoint are known."""
        for message in messages:
            if self.progress.add(message):
                self._on_message(message)

    @property
    def _context(self) -> RunContext:
        """The context of the sub-agent and its tools."""
        parent = self._task.context
        return replace(parent, task_id=self._task.task_id, depth=parent.depth + 1, trace_id=self._trace_id)

    def _limit_reached(self) -> StopReason | None:
        if not self.progress.wants_tools:
            return None
        if self.progress.turns >= self._task.config.max_turns:
            return "turn_capped"
        budget = self._task.config.token_budget
        if budget is None or not budget.enabled:
            return None
        share = used_share(self.progress.usage, budget)
        if share >= budget.hard_stop_threshold:
            return "token_capped"
        if share >= budget.warn_threshold and not self._is_warned:
            self._is_warned = True
            self.inbox.append(
                f"You have used {share:.0%} of your tokens. Finish now: report what you have found."
            )
        return None

    def _question(self) -> TaskEnd:
        """Return the first question: one at a time, so that answers cannot be mixed up."""
        question = TaskQuestion(self._interrupts[0].value, self.answered)
        return TaskEnd(SubagentStatus.RUNNING, question=question)

    def _config(self) -> RunnableConfig:
        config: RunnableConfig = {
            "configurable": {"thread_id": self._task.thread_id},
            # A backstop: `max_turns` is checked elsewhere, including turns before a restart.
            "recursion_limit": STEPS_PER_TURN * (self._task.config.max_turns + 1),
            "metadata": {
                "task_id": self._task.task_id,
                "trace_id": self._trace_id,
                "answers": self.answered,
            },
        }
        if self._parent_span is not None and self._parent_span.callbacks is not None:
            config["callbacks"] = self._parent_span.callbacks
        return config


class TaskProgress:
    """The messages of one task, in order and without duplicates: its findings survive an early stop."""

    def __init__(self, messages: Iterable[AnyMessage] = ()) -> None:
        self._messages: dict[str, AIMessage | ToolMessage] = {}
        self._unfinished_text: list[str] = []
        self._other_usage: list[Mapping[str, Any]] = []
        for message in messages:
            self.add(message)

    def add(self, message: AnyMessage) -> bool:
        """Add a message; return whether it is a new one of the sub-agent or its tools."""
        if not isinstance(message, AIMessage | ToolMessage):
            return False
        key = _message_key(message)
        is_new = key not in self._messages
        self._messages[key] = message
        if isinstance(message, AIMessage):
            self._unfinished_text.clear()
        return is_new

    def add_text(self, text: str) -> None:
        """Add streamed text of an answer that is not complete yet."""
        self._unfinished_text.append(text)

    def add_usage(self, usage: Mapping[str, Any]) -> None:
        """Count tokens used outside of the conversation, such as for a summary."""
        self._other_usage.append(usage)

    @property
    def messages(self) -> tuple[AIMessage | ToolMessage, ...]:
        """The messages of the sub-agent and its tools."""
        return tuple(self._messages.values())

    @property
    def answers(self) -> tuple[AIMessage, ...]:
        """The model's answers."""
        return tuple(each for each in self._messages.values() if isinstance(each, AIMessage))

    @property
    def turns(self) -> int:
        """Number of model answers."""
        return len(self.answers)

    @property
    def wants_tools(self) -> bool:
        """Whether the last answer has tool calls, so that the task is not done."""
        return bool(self.answers and self.answers[-1].tool_calls)

    @property
    def usage(self) -> dict[str, int] | None:
        """Tokens used so far; None when the provider reports none."""
        reported = [answer.usage_metadata for answer in self.answers if answer.usage_metadata]
        used: list[Mapping[str, Any]] = [*reported, *self._other_usage]
        return {key: sum(usage.get(key) or 0 for usage in used) for key in USAGE_KEYS} if used else None

    def final_text(self) -> str:
        """Return the text of the last answer, or all findings when it has none."""
        answers = self.answers
        return (answers[-1].text.strip() if answers else "") or self.findings()

    def findings(self) -> str:
        """Return the findings so far: the text of all answers, or without any the last tool results."""
        texts = [*(answer.text for answer in self.answers), "".join(self._unfinished_text)]
        if found := [text.strip() for text in texts if text.strip()]:
            return "\n\n".join(found)
        results = [message for message in self._messages.values() if isinstance(message, ToolMessage)]
        return "\n\n".join(
            f"[{result.name or 'tool'}] {result.text.strip()[:MAX_TOOL_CHARS]}"
            for result in results[-MAX_TOOL_RESULTS:]
            if result.text.strip()
        )


def used_share(usage: Mapping[str, int] | None, budget: TokenBudgetSettings) -> float:
    """Return the used share of a budget: the largest of its total, input and output shares."""
    if not usage:
        return 0.0
    parts = (
        (usage["total_tokens"], budget.max_tokens),
        (usage["input_tokens"], budget.max_input_tokens),
        (usage["output_tokens"], budget.max_output_tokens),
    )
    return max(used / most for used, most in parts if most is not None)


def _answered_in(saved: CheckpointTuple) -> int:
    """Return how many questions were answered: before this checkpoint, and in its pending writes."""
    pending = {
        task: len(value) for task, channel, value in saved.pending_writes or () if channel == RESUME_CHANNEL
    }
    metadata = cast("dict[str, Any]", saved.metadata)
    return int(metadata.get("answers") or 0) + sum(pending.values())


def _messages_in(update: Mapping[str, Any]) -> list[AnyMessage]:
    """Return the messages that a step wrote."""
    parts = (part for value in update.values() for part in (value if isinstance(value, list) else [value]))
    return [message for part in parts if isinstance(part, dict) for message in part.get("messages", ())]


def _message_key(message: AIMessage | ToolMessage) -> str:
    """Return the key by which a repeated message is recognized."""
    if message.id:
        return message.id
    if isinstance(message, ToolMessage):
        return f"result {message.tool_call_id}"
    calls = [call["id"] for call in message.tool_calls]
    return hashlib.sha256(f"{message.text}{calls}".encode()).hexdigest()
