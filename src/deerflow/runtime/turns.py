"""Finds the turn to regenerate in a conversation: its start, and the state before it."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointMetadata, empty_checkpoint

from deerflow.errors import ConflictError, NotFoundError
from deerflow.runtime.conversation import Said, Step, id_of, place, said

_A_WHILE = 1 << 96
"""About half a minute in the timestamp of a checkpoint id."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that can be regenerated."""

    target: Said
    """The message by which it was found."""
    question: Sequence[Said]
    """The user's messages that begin it, oldest first."""
    since: Sequence[Said]
    """All messages from its first one on, oldest first."""

    @property
    def step(self) -> Step:
        """The step that applied the user's messages."""
        step = self.question[0].step
        assert step is not None, "only a message with its step starts a turn"
        return step


@dataclass(frozen=True, slots=True)
class Found:
    """A message, and its position in its run."""

    item: Said
    ends_run: bool
    """It is the last message of its run."""
    is_before_tools: bool
    """No tool of its run had returned before it, so the run had changed nothing."""


async def find_turn(checkpoints: BaseCheckpointSaver[Any], thread_id: str, message_id: str) -> Turn:
    """Return the turn of a message; `NotFoundError` when the message is not in the conversation."""
    since: list[Said] = []
    target: Said | None = None
    question: list[Said] = []
    async for item in said(checkpoints, thread_id):
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
            f"the state before message {message_id} is no longer kept, so its turn cannot be taken again"
        )
    return Turn(target, question[::-1], since[::-1])


async def find_message(
    checkpoints: BaseCheckpointSaver[Any], thread_id: str, message_ids: Sequence[str]
) -> Found:
    """Return the last message of a conversation that has one of these ids."""
    wanted = frozenset(message_ids)
    target: Said | None = None
    newer: Said | None = None
    async for item in said(checkpoints, thread_id):
        if target is None:
            if item.message.id in wanted:
                target = item
            else:
                newer = item
        elif item.run_id != target.run_id:
            break
        elif item.message.type == "tool":
            return Found(target, ends_run=_ends_run(target, newer), is_before_tools=False)
    if target is None:
        raise NotFoundError("message", message_ids[0])
    return Found(target, ends_run=_ends_run(target, newer), is_before_tools=target.message.type != "tool")


def _ends_run(item: Said, newer: Said | None) -> bool:
    return newer is None or newer.run_id != item.run_id


async def base_of(checkpoints: BaseCheckpointSaver[Any], thread_id: str, turn: Turn) -> str:
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
    await checkpoints.aput(place(thread_id), root, metadata, {})
    return root["id"]


def as_input(message: BaseMessage) -> dict[str, Any]:
    """Return a message as a client sends it again, with the same id."""
    fields = {"type": message.type, "content": message.content, "id": message.id, "name": message.name}
    kept = {key: value for key, value in fields.items() if value is not None}
    return {**kept, "additional_kwargs": dict(message.additional_kwargs)}
