"""Every private name of LangGraph that DeerFlow relies on: snapshots, msgpack extensions and the id clock.

`tests/unit/storage/test_langgraph_private.py` compares the behaviour with LangGraph's own, so that an upgrade
which changes one of these names fails there.
"""

from collections.abc import Iterable
from typing import Any

import ormsgpack
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base import id as checkpoint_ids
from langgraph.checkpoint.serde.jsonplus import EXT_DELTA_SNAPSHOT, EXT_PYDANTIC_V2, JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot as DeltaSnapshot
from typing_extensions import override

__all__ = ["DELTA_COUNTERS", "DeltaSnapshot", "StrictSerializer", "advance_id_clock"]

DELTA_COUNTERS = "counters_since_delta_snapshot"
"""Metadata key of a checkpoint: its delta channels, with the number of writes since their snapshots."""
_UUID_VERSION = 6
_TIME_DIGITS = 16
"""Number of leading hexadecimal digits of an id that hold its version and time."""
_set = object.__setattr__


class StrictSerializer(JsonPlusSerializer):
    """LangGraph's serializer with pickle off, an allow-list on, and a faster decoder for messages.

    Only types on LangGraph's allow-list, and those that are added here, are decoded as objects; anything else
    is decoded as plain data. Messages were validated when they entered a thread, so they are not validated
    again: reading a thread of 200 messages takes a third to a quarter of the time.
    """

    def __init__(self, allowed: Iterable[tuple[str, ...] | type] = ()) -> None:
        super().__init__(
            pickle_fallback=False, allowed_json_modules=None, allowed_msgpack_modules=list(allowed) or None
        )

    @override
    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, body = data
        return self._unpack(body) if kind == "msgpack" else super().loads_typed(data)

    def _unpack(self, body: bytes) -> Any:
        return ormsgpack.unpackb(body, ext_hook=self._revive, option=ormsgpack.OPT_NON_STR_KEYS)

    def _revive(self, code: int, body: bytes) -> Any:
        if code == EXT_PYDANTIC_V2:
            module, name, fields, *_ = self._unpack(body)
            known = _MESSAGES.get((module, name))
            if known is not None and fields.keys() == known[1]:
                return _message(*known, fields)
        if code == EXT_DELTA_SNAPSHOT:
            return DeltaSnapshot(self._unpack(body))
        return self._unpack_ext_hook(code, body)


def _message(kind: type[BaseMessage], names: set[str], fields: dict[str, Any]) -> BaseMessage:
    """Return a message with all its fields unchanged, like pydantic's `model_construct`."""
    message = kind.__new__(kind)
    _set(message, "__dict__", fields)
    _set(message, "__pydantic_fields_set__", names)  # shared: it holds every name, so nothing is added
    _set(message, "__pydantic_extra__", {})
    _set(message, "__pydantic_private__", None)
    return message


_MESSAGES: dict[tuple[str, str], tuple[type[BaseMessage], set[str]]] = {
    (kind.__module__, kind.__name__): (kind, set(kind.model_fields))
    for kind in (AIMessage, HumanMessage, SystemMessage, ToolMessage)
}


def advance_id_clock(checkpoint_id: str) -> None:
    """Make all checkpoint ids that this process creates from now on larger than this one.

    The newest checkpoint of a thread is the one with the largest id, and LangGraph derives ids from the time.
    If a clock is set back, or one machine's clock is behind another's, a whole turn would be sorted before
    the previous one and never be read. So reading a checkpoint advances the clock.
    """
    try:
        head = int(checkpoint_id.replace("-", "")[:_TIME_DIGITS], 16)
    except ValueError:
        return  # an id that is not derived from the time
    if head >> 12 & 0xF != _UUID_VERSION:
        return
    seen = head >> 16 << 12 | head & 0xFFF
    last = checkpoint_ids._last_v6_timestamp
    if last is None or last < seen:
        checkpoint_ids._last_v6_timestamp = seen  # type: ignore[assignment]
