"""Checkpoint serializer: strict msgpack, fast for messages.

Only types on LangGraph's allow-list, and those that are added here, are decoded as objects; anything else
is decoded as plain data, and nothing is ever pickled. Messages were validated when they entered a
thread, so reading a long thread does not validate them again.

It uses private names of LangGraph: the codes of its msgpack extensions and `_DeltaSnapshot`.
Its tests compare the result with LangGraph's own decoder.
"""

from collections.abc import Iterable
from typing import Any

import ormsgpack
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import EXT_DELTA_SNAPSHOT, EXT_PYDANTIC_V2, JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from typing_extensions import override

_set = object.__setattr__


class StrictSerializer(JsonPlusSerializer):
    """LangGraph's serializer with pickle off and an allow-list on."""

    def __init__(self, allowed: Iterable[tuple[str, ...] | type] = ()) -> None:
        super().__init__(
            pickle_fallback=False, allowed_json_modules=None, allowed_msgpack_modules=list(allowed) or None
        )

    @override
    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, body = data
        if kind != "msgpack":
            return super().loads_typed(data)
        return ormsgpack.unpackb(body, ext_hook=self._revive, option=ormsgpack.OPT_NON_STR_KEYS)

    def _revive(self, code: int, body: bytes) -> Any:
        if code == EXT_PYDANTIC_V2:
            fields = ormsgpack.unpackb(body, ext_hook=self._revive, option=ormsgpack.OPT_NON_STR_KEYS)
            known = _MESSAGES.get((fields[0], fields[1]))
            if known is not None and fields[2].keys() == known[1]:
                return _message(known[0], known[1], fields[2])
        if code == EXT_DELTA_SNAPSHOT:
            return _DeltaSnapshot(
                ormsgpack.unpackb(body, ext_hook=self._revive, option=ormsgpack.OPT_NON_STR_KEYS)
            )
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
