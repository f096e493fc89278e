"""Collects every use of LangGraph's beta APIs (private names: `storage/langgraph_private.py`).

`tests/unit/agents/test_langgraph_beta.py` pins the behaviour of each, so that an upgrade which changes one of
them fails there.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import AnyMessage, BaseMessage, RemoveMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    CheckpointMetadata,
    CheckpointTuple,
    empty_checkpoint,
)
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from deerflow.storage.langgraph_private import DELTA_COUNTERS, DeltaSnapshot

SNAPSHOT_FREQUENCY = 16
"""Number of updates between two snapshots of the whole list: a read replays at most this many writes."""
_MESSAGES = "messages"
MODEL_NODE = "model"
"""The graph node that calls the model."""
INPUT_NODE = "__input__"
"""The node name under which a run's input is stored."""
TOOLS_NODE = "tools"
"""The graph node that runs tool calls, each as its own LangGraph task."""


def messages_channel() -> DeltaChannel[list[AnyMessage]]:
    """Return a channel that stores the messages added by a step instead of the whole list."""
    return DeltaChannel(reduce_messages, list, snapshot_frequency=SNAPSHOT_FREQUENCY)


def reduce_messages(state: Sequence[Any], writes: Sequence[Any]) -> list[BaseMessage]:
    """Return `state` after `writes`; each write is one message or a list of messages.

    A message with a known id replaces the old one in index, `RemoveMessage` removes one, and
    `REMOVE_ALL_MESSAGES` clears the list. The result does not depend on how writes are batched; replay
    relies on that. This is why removing an unknown id is not an error.
    """
    added = convert_to_messages([item for write in writes for item in _items(write)])
    for position in range(len(added) - 1, -1, -1):
        if isinstance(added[position], RemoveMessage) and added[position].id == REMOVE_ALL_MESSAGES:
            return _merge([], added[position + 1 :])
    present = list(state)
    return _merge(present if all_messages(present) else convert_to_messages(present), added)


def all_messages(items: Sequence[Any]) -> bool:
    """Return whether no item needs conversion; the reducer's own results never do."""
    return not items or isinstance(items[0], BaseMessage)


def _items(write: Any) -> Sequence[Any]:
    return write if isinstance(write, list) else [write]


def _merge(present: list[BaseMessage], added: Sequence[BaseMessage]) -> list[BaseMessage]:
    merged: list[BaseMessage | None] = list(present)
    index = dict(zip([message.id for message in present], range(len(present)), strict=True))
    for message in added:
        known = None if message.id is None else index.get(message.id)
        if isinstance(message, RemoveMessage):
            if known is not None:
                merged[known] = None
                index.pop(message.id or "")
        elif known is not None:
            merged[known] = message
        else:
            if message.id is not None:
                index[message.id] = len(merged)
            merged.append(message)
    return [message for message in merged if message is not None]


async def set_in_place(
    saver: BaseCheckpointSaver[Any], config: RunnableConfig, values: Mapping[str, Any]
) -> None:
    """Set channels that trigger no node in a thread's newest checkpoint, without adding a step.

    A step would create a new checkpoint, and the pending interrupts of this one would be lost.
    """
    head = await saver.aget_tuple(config)
    assert head is not None, "only a thread with a state has something to set"
    checkpoint = head.checkpoint
    version = saver.get_next_version(max(checkpoint["channel_versions"].values(), default=None), None)
    versions = dict.fromkeys(values, version)
    checkpoint["channel_values"] = {**checkpoint["channel_values"], **values}
    checkpoint["channel_versions"] = {**checkpoint["channel_versions"], **versions}
    names = {"thread_id": config["configurable"]["thread_id"], "checkpoint_ns": ""}
    above: RunnableConfig = head.parent_config or {"configurable": names}
    await saver.aput(above, checkpoint, head.metadata, versions)


async def hold_messages(saver: BaseCheckpointSaver[Any], config: RunnableConfig) -> None:
    """Store all messages in the newest checkpoint of a namespace, so that reads need no older checkpoint."""
    head = await saver.aget_tuple(config)
    if head is None or _MESSAGES not in head.checkpoint["channel_versions"]:
        return
    checkpoint = head.checkpoint
    if _MESSAGES in checkpoint["channel_values"]:
        return
    held = DeltaSnapshot(await stored_messages(saver, head))
    checkpoint["channel_values"] = {**checkpoint["channel_values"], _MESSAGES: held}
    metadata: dict[str, Any] = {**head.metadata}
    counters = dict(metadata.pop(DELTA_COUNTERS, None) or {})
    counters.pop(_MESSAGES, None)
    above: RunnableConfig = head.parent_config or {
        "configurable": {key: head.config["configurable"][key] for key in ("thread_id", "checkpoint_ns")}
    }
    noted = cast("CheckpointMetadata", {**metadata, **({DELTA_COUNTERS: counters} if counters else {})})
    await saver.aput(above, checkpoint, noted, {})


async def stored_messages(saver: BaseCheckpointSaver[Any], found: CheckpointTuple) -> list[AnyMessage]:
    """Return the messages of a checkpoint, whether it holds them or only the writes before it do."""
    values, channel = found.checkpoint["channel_values"], messages_channel()
    if _MESSAGES in values:
        channel = channel.from_checkpoint(values[_MESSAGES])
    else:
        history = (await saver.aget_delta_channel_history(config=found.config, channels=[_MESSAGES]))[
            _MESSAGES
        ]
        channel = channel.from_checkpoint(history.get("seed", []))
        channel.replay_writes(history["writes"])
    return list(channel.get())


async def store_ended(
    saver: BaseCheckpointSaver[Any], config: RunnableConfig, messages: Sequence[AnyMessage]
) -> None:
    """Store a finished conversation that ran without a graph; a graph that loads it has nothing to run."""
    version = saver.get_next_version(None, None)
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"messages": list(messages)}
    checkpoint["channel_versions"] = {"messages": version}
    index: RunnableConfig = {**config, "configurable": {"checkpoint_ns": "", **config["configurable"]}}
    await saver.aput(index, checkpoint, {"source": "update", "step": 0, "parents": {}}, {"messages": version})
