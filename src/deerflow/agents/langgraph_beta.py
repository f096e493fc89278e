"""Everything beta or private of LangGraph that we lean on, in one place.

`tests/unit/agents/test_langgraph_beta.py` holds each of these to its contract, so that an upgrade which
changes one of them shows at once.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import AnyMessage, BaseMessage, RemoveMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointMetadata, empty_checkpoint
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph.message import REMOVE_ALL_MESSAGES

SNAPSHOT_FREQUENCY = 16
"""Every so many updates the whole list is stored, so that a read replays at most this many writes."""
_MESSAGES = "messages"
_COUNTERS = "counters_since_delta_snapshot"
MODEL_NODE = "model"
"""The node of an agent's graph that asks the model."""
INPUT_NODE = "__input__"
"""In whose name an input is stored."""
TOOLS_NODE = "tools"
"""The node that makes the calls, each as a task of its own."""


def messages_channel() -> DeltaChannel[list[AnyMessage]]:
    """Return the channel that stores what was added in a step instead of the whole conversation."""
    return DeltaChannel(reduce_messages, list, snapshot_frequency=SNAPSHOT_FREQUENCY)


def reduce_messages(state: Sequence[Any], writes: Sequence[Any]) -> list[BaseMessage]:
    """Return `state` after `writes`, each one message or a list of them.

    A known id replaces its message in place, `RemoveMessage` takes one out, and `REMOVE_ALL_MESSAGES`
    starts anew. The result is the same however the writes are batched, which replaying relies on;
    that is why removing an unknown id is no error here.
    """
    added = convert_to_messages([item for write in writes for item in _items(write)])
    for position in range(len(added) - 1, -1, -1):
        if isinstance(added[position], RemoveMessage) and added[position].id == REMOVE_ALL_MESSAGES:
            return _merge([], added[position + 1 :])
    present = list(state)
    return _merge(present if all_messages(present) else convert_to_messages(present), added)


def all_messages(items: Sequence[Any]) -> bool:
    """Tell whether nothing needs converting; the reducer's own results never do."""
    return not items or isinstance(items[0], BaseMessage)


def _items(write: Any) -> Sequence[Any]:
    return write if isinstance(write, list) else [write]


def _merge(present: list[BaseMessage], added: Sequence[BaseMessage]) -> list[BaseMessage]:
    merged: list[BaseMessage | None] = list(present)
    place = dict(zip([message.id for message in present], range(len(present)), strict=True))
    for message in added:
        known = None if message.id is None else place.get(message.id)
        if isinstance(message, RemoveMessage):
            if known is not None:
                merged[known] = None
                place.pop(message.id or "")
        elif known is not None:
            merged[known] = message
        else:
            if message.id is not None:
                place[message.id] = len(merged)
            merged.append(message)
    return [message for message in merged if message is not None]


async def set_in_place(
    saver: BaseCheckpointSaver[Any], config: RunnableConfig, values: Mapping[str, Any]
) -> None:
    """Set channels that start no node in a thread's newest checkpoint, without a step.

    A step would have a checkpoint of its own, and the questions that wait at this one would be left behind.
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
    """Store the whole conversation in the newest checkpoint of a place, so that it needs no older one."""
    head = await saver.aget_tuple(config)
    if head is None or _MESSAGES not in head.checkpoint["channel_versions"]:
        return
    checkpoint = head.checkpoint
    if _MESSAGES in checkpoint["channel_values"]:
        return
    told = (await saver.aget_delta_channel_history(config=head.config, channels=[_MESSAGES]))[_MESSAGES]
    channel = messages_channel().from_checkpoint(told.get("seed", []))
    channel.replay_writes(told["writes"])
    checkpoint["channel_values"] = {
        **checkpoint["channel_values"],
        _MESSAGES: _DeltaSnapshot(channel.get()),
    }
    metadata: dict[str, Any] = {**head.metadata}
    counters = dict(metadata.pop(_COUNTERS, None) or {})
    counters.pop(_MESSAGES, None)
    above: RunnableConfig = head.parent_config or {
        "configurable": {key: head.config["configurable"][key] for key in ("thread_id", "checkpoint_ns")}
    }
    noted = cast("CheckpointMetadata", {**metadata, **({_COUNTERS: counters} if counters else {})})
    await saver.aput(above, checkpoint, noted, {})


async def keep_ended(
    saver: BaseCheckpointSaver[Any], config: RunnableConfig, messages: Sequence[AnyMessage]
) -> None:
    """Store a conversation that ended without a graph; a graph reads it and has nothing left to do."""
    version = saver.get_next_version(None, None)
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"messages": list(messages)}
    checkpoint["channel_versions"] = {"messages": version}
    place: RunnableConfig = {**config, "configurable": {"checkpoint_ns": "", **config["configurable"]}}
    await saver.aput(place, checkpoint, {"source": "update", "step": 0, "parents": {}}, {"messages": version})
