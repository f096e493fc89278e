"""Reads a thread's messages from the checkpoints that led to its current state, and finds turns in them.

Each checkpoint stores the writes of the next step, so nothing is read twice, a message that a summary has
replaced is still found, and a turn that was discarded (regenerated, rolled back) is not.
"""

import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from langchain_core.messages import BaseMessage, RemoveMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
    empty_checkpoint,
)
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Overwrite

from deerflow.agents.langgraph_beta import stored_messages
from deerflow.errors import ConflictError, NotFoundError
from deerflow.files.file_history import HistoryPoint

_MESSAGES = "messages"
_SUMMARY = "summary_text"


@dataclass(frozen=True, slots=True)
class CheckpointStep:
    """One step of a thread: the checkpoint before it and the checkpoint after it."""

    before: CheckpointTuple
    after: CheckpointTuple
    own_writes: Sequence[PendingWrite] | None = None
    """The writes of a step whose `before` already had a next step; None: they are stored in `before`."""

    @property
    def run_id(self) -> str | None:
        return self.after.metadata.get("run_id")

    @property
    def starts_turn(self) -> bool:
        """Whether the step took in the input of a run, or is the only step kept of its run."""
        if self._took_input or self.before.parent_config is None:
            return True
        return self.before.metadata.get("run_id") != self.run_id

    @property
    def base_id(self) -> str | None:
        """The checkpoint before the turn that this step starts; None when there was none."""
        return parent_of(self.before) if self._took_input else id_of(self.before.config)

    @property
    def writes(self) -> Sequence[PendingWrite]:
        """The writes of the step: task, channel and value."""
        return (self.before.pending_writes or ()) if self.own_writes is None else self.own_writes

    @property
    def _took_input(self) -> bool:
        return self.before.metadata.get("source") == "input"


@dataclass(frozen=True, slots=True)
class ThreadMessage:
    """One message of a thread, and its origin."""

    message: BaseMessage
    seq: int
    """Increases along the thread: microseconds, plus the index within its step."""
    at: datetime
    run_id: str | None
    checkpoint_id: str
    """The first checkpoint that contains the message."""
    step: CheckpointStep | None
    """The step that added it; None when only the resulting state was kept."""

    @property
    def starts_turn(self) -> bool:
        """Whether a turn begins with it and the state before that is known."""
        return self.message.type == "human" and self.step is not None and self.step.starts_turn


async def steps(checkpoints: BaseCheckpointSaver[Any], thread_id: str) -> AsyncIterator[CheckpointStep]:
    """Yield the steps that led to a thread's current state, newest first."""
    after: CheckpointTuple | None = None
    discarded: set[str | None] = set()
    async for found in checkpoints.alist(config_of(thread_id)):
        if after is None:
            after = found
        elif id_of(found.config) == parent_of(after):
            is_branch = id_of(found.config) in discarded
            yield CheckpointStep(found, after, await _added(checkpoints, found, after) if is_branch else None)
            after, discarded = found, set()
        else:  # it belongs to a discarded turn
            discarded.add(parent_of(found))


async def _added(
    checkpoints: BaseCheckpointSaver[Any], before: CheckpointTuple, after: CheckpointTuple
) -> list[PendingWrite]:
    """Return the writes of a step that leaves a checkpoint again; those stored there are the first step's.

    LangGraph stores none for it: the checkpoint after it holds its messages.
    """
    if _MESSAGES not in after.checkpoint["channel_values"]:
        return []
    known = {message.id: message for message in await stored_messages(checkpoints, before)}
    new = [each for each in await stored_messages(checkpoints, after) if known.get(each.id) != each]
    return [("", _MESSAGES, new)]


async def thread_messages(
    checkpoints: BaseCheckpointSaver[Any], thread_id: str
) -> AsyncIterator[ThreadMessage]:
    """Yield the messages of a thread, newest first, each in its latest version."""
    hidden: set[str] = set()
    oldest: CheckpointTuple | None = None
    async for turn in _turns(checkpoints, thread_id):
        oldest = turn[-1].before
        for item in _current(_turn(turn), hidden):
            yield item
        if REMOVE_ALL_MESSAGES in hidden:
            return
    oldest = oldest or await checkpoints.aget_tuple(config_of(thread_id))
    for item in _current(_oldest_known(oldest), hidden):
        yield item


def config_of(thread_id: str, checkpoint_id: str | None = None) -> RunnableConfig:
    """Return the config of a thread's latest state, or of a checkpoint."""
    names: dict[str, Any] = {"thread_id": thread_id, "checkpoint_ns": ""}
    return {"configurable": {**names, "checkpoint_id": checkpoint_id} if checkpoint_id else names}


def id_of(config: RunnableConfig) -> str:
    """Return the checkpoint id in a config."""
    return str(config["configurable"]["checkpoint_id"])


def parent_of(found: CheckpointTuple) -> str | None:
    """Return the id of the parent checkpoint; None for the first."""
    return id_of(found.parent_config) if found.parent_config else None


async def _turns(
    checkpoints: BaseCheckpointSaver[Any], thread_id: str
) -> AsyncIterator[list[CheckpointStep]]:
    """Yield the steps of each turn, newest first.

    A message that is sent again after its answer failed forms one turn with the earlier attempts, and so
    precedes all of them.
    """
    known: list[CheckpointStep] = []
    turn: list[CheckpointStep] = []
    question_ids: set[str] = set()
    async for step in steps(checkpoints, thread_id):
        turn.append(step)
        if not step.starts_turn:
            continue
        older = {message.id or "" for each in turn for message in _written(each) if message.type == "human"}
        # Without a user message it continues the turn before it.
        if older and known and not older & question_ids:
            yield known
            known = []
        known, turn, question_ids = [*known, *turn], [], older or question_ids
    if known or turn:
        yield [*known, *turn]


def _turn(turn: Sequence[CheckpointStep]) -> list[ThreadMessage | RemoveMessage]:
    """Return what a turn added, oldest first; a rewritten message keeps its first position."""
    added: dict[str, ThreadMessage | RemoveMessage] = {}
    for step in reversed(turn):
        is_summed_up = any(channel == _SUMMARY for _, channel, _ in step.writes)
        for index, message in enumerate(_written(step)):
            key = message.id or f"{id_of(step.after.config)}/{index}"
            if not isinstance(message, RemoveMessage):
                older = added.get(key)
                new = _message_of(step, message, index)
                added[key] = replace(older, message=message) if isinstance(older, ThreadMessage) else new
            elif not is_summed_up:  # messages that a summary replaced are kept
                added.pop(key, None)
                added[key] = message
    return list(added.values())


def _current(items: Sequence[ThreadMessage | RemoveMessage], hidden: set[str]) -> Iterator[ThreadMessage]:
    """Yield the messages that nothing newer has removed or rewritten, newest first; updates `hidden`."""
    for item in reversed(items):
        if isinstance(item, RemoveMessage):
            hidden.add(item.id or "")
            if item.id == REMOVE_ALL_MESSAGES:
                return
        elif item.message.id is None or item.message.id not in hidden:
            hidden.add(item.message.id or "")
            yield item


def _written(step: CheckpointStep) -> Iterator[BaseMessage]:
    for _, channel, value in step.writes:
        if channel == _MESSAGES:
            if isinstance(value, Overwrite):
                yield RemoveMessage(id=REMOVE_ALL_MESSAGES)
                value = value.value
            yield from convert_to_messages(value if isinstance(value, list) else [value])


def _message_of(step: CheckpointStep, message: BaseMessage, index: int) -> ThreadMessage:
    at = datetime.fromisoformat(step.after.checkpoint["ts"])
    return ThreadMessage(
        message=message,
        seq=_microseconds(at) + index,
        at=at,
        run_id=step.run_id,
        checkpoint_id=id_of(step.after.config),
        step=step,
    )


def _oldest_known(oldest: CheckpointTuple | None) -> list[ThreadMessage]:
    """Return the messages of the oldest checkpoint: all that is known of a thread with a pruned history."""
    if oldest is None:
        return []
    value = oldest.checkpoint["channel_values"].get(_MESSAGES)
    messages = getattr(value, "value", value) or []
    at = datetime.fromisoformat(oldest.checkpoint["ts"])
    first = _microseconds(at) - len(messages)
    run_id = oldest.metadata.get("run_id")
    return [
        ThreadMessage(message, first + index, at, run_id, id_of(oldest.config), None)
        for index, message in enumerate(convert_to_messages(messages))
    ]


def _microseconds(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)


_A_WHILE = 1 << 96
"""About half a minute in the timestamp of a checkpoint id."""


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """A turn that can be regenerated."""

    target: ThreadMessage
    """The message by which it was found."""
    question: Sequence[ThreadMessage]
    """The user's messages that begin it, oldest first."""
    since: Sequence[ThreadMessage]
    """All messages from its first one on, oldest first."""

    @property
    def step(self) -> CheckpointStep:
        """The step that applied the user's messages."""
        step = self.question[0].step
        assert step is not None, "only a message with its step starts a turn"
        return step


async def find_turn(
    checkpoints: BaseCheckpointSaver[Any], thread_id: str, message_id: str
) -> ConversationTurn:
    """Return the turn of a message; `NotFoundError` when the message is not in the conversation."""
    since: list[ThreadMessage] = []
    target: ThreadMessage | None = None
    question: list[ThreadMessage] = []
    async for item in thread_messages(checkpoints, thread_id):
        if question and item.checkpoint_id != question[0].checkpoint_id:
            break
        since.append(item)
        if item.message.id == message_id:
            target = item
        if target is not None and item.starts_turn:
            question.append(item)
    if target is None:
        raise NotFoundError("message", message_id)
    if not question:
        raise ConflictError(
            f"the state before message {message_id} is no longer kept, so its turn cannot be regenerated"
        )
    return ConversationTurn(target, question[::-1], since[::-1])


async def find_message(
    checkpoints: BaseCheckpointSaver[Any], thread_id: str, message_ids: Sequence[str]
) -> tuple[ThreadMessage, HistoryPoint]:
    """Return the last message of a conversation that has one of these ids, and its position in its run."""
    wanted = frozenset(message_ids)
    target: ThreadMessage | None = None
    newer: ThreadMessage | None = None
    had_tools = False
    async for item in thread_messages(checkpoints, thread_id):
        if target is None:
            if item.message.id in wanted:
                target = item
            else:
                newer = item
        elif item.run_id != target.run_id:
            break
        elif item.message.type == "tool":
            had_tools = True
            break
    if target is None:
        raise NotFoundError("message", message_ids[0])
    ends_run = newer is None or newer.run_id != target.run_id
    had_tools = had_tools or target.message.type == "tool"
    return target, HistoryPoint(target.run_id, target.at, ends_run, is_before_tools=not had_tools)


async def base_checkpoint(
    checkpoints: BaseCheckpointSaver[Any], thread_id: str, turn: ConversationTurn
) -> str:
    """Return the checkpoint from which a turn can be regenerated.

    A thread's first turn has none before it, so an empty one is stored, older than all others.
    """
    if turn.step.base_id is not None:
        return turn.step.base_id
    first = turn.step.before
    root = empty_checkpoint()
    root["id"] = str(uuid.UUID(int=uuid.UUID(id_of(first.config)).int - _A_WHILE))
    root["ts"] = first.checkpoint["ts"]
    metadata: CheckpointMetadata = {"source": "update", "step": -2, "parents": {}}
    await checkpoints.aput(config_of(thread_id), root, metadata, {})
    return root["id"]


def as_input(message: BaseMessage) -> dict[str, Any]:
    """Return a message as a client sends it again, with the same id."""
    fields = {"type": message.type, "content": message.content, "id": message.id, "name": message.name}
    kept = {key: value for key, value in fields.items() if value is not None}
    return {**kept, "additional_kwargs": dict(message.additional_kwargs)}
