"""Converts one chunk of the graph's stream to one event (a pure function)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LOGGED_MODES = ("values", "messages", "updates", "custom")
"""Every run logs these, whatever its first reader requested, so that later readers find them."""

EXTRA_MODES = ("tasks", "checkpoints", "debug")
"""Modes that are logged only for runs that request them."""

CLIENT_MODES = frozenset({*LOGGED_MODES, "messages-tuple", *EXTRA_MODES, "events"})

ALWAYS_SENT = frozenset({"metadata", "error", "end"})


@dataclass(frozen=True, slots=True)
class GraphEvent:
    """One event before it has a number: its name on the wire and its payload."""

    kind: str
    payload: Any


def graph_modes(client_modes: tuple[str, ...]) -> list[str]:
    """Return the modes to run the graph with."""
    return [*LOGGED_MODES, *(mode for mode in EXTRA_MODES if mode in client_modes)]


def translate(namespace: tuple[str, ...], mode: str, chunk: Any) -> GraphEvent | None:
    """Return the event for one chunk; None for a chunk that no reader needs (again)."""
    kind = "|".join((mode, *namespace))
    match mode:
        case "values":
            return GraphEvent(kind, visible_values(chunk))
        case "updates":
            if _is_repeated(chunk):
                return None
            return GraphEvent(kind, {node: visible_values(update) for node, update in chunk.items()})
        case "messages":
            message, metadata = chunk
            return GraphEvent(kind, (message, metadata))
        case "checkpoints" | "debug":
            return GraphEvent(kind, _without_inside(chunk))
        case _:
            return GraphEvent(kind, chunk)


HIDDEN_VALUES = frozenset({"skill_texts"})
"""Keys of the state that are for the model only, and long."""


def visible_values(values: Any) -> Any:
    """Return a state without the graph's internal keys."""
    if not isinstance(values, Mapping):
        return values
    return {
        key: value
        for key, value in values.items()
        if not key.startswith("__pregel_") and key not in HIDDEN_VALUES
    }


def is_wanted(kind: str, client_modes: frozenset[str]) -> bool:
    """Return whether a reader of these modes gets events of this kind."""
    mode = kind.partition("|")[0].partition("/")[0]  # `messages/partial` is a form of `messages`
    if mode in ALWAYS_SENT or mode in client_modes:
        return True
    return mode == "messages" and "messages-tuple" in client_modes


def _without_inside(chunk: Any) -> Any:
    """Return a chunk whose configs hold only keys that a client may send back."""
    if not isinstance(chunk, Mapping):
        return chunk
    visible = {
        "config": _visible_config,
        "parent_config": _visible_config,
        "payload": _without_inside,
        "values": visible_values,
    }
    return {key: visible[key](value) if key in visible else value for key, value in chunk.items()}


def _visible_config(config: Any) -> Any:
    if not isinstance(config, Mapping) or not isinstance(config.get("configurable"), Mapping):
        return config
    names = {key: value for key, value in config["configurable"].items() if not key.startswith("__")}
    return {**config, "configurable": names}


def _is_repeated(update: Any) -> bool:
    """Return whether an update is repeated: after a crash, finished tasks come again, marked as cached."""
    metadata = update.get("__metadata__") if isinstance(update, Mapping) else None
    return isinstance(metadata, Mapping) and bool(metadata.get("cached"))
