"""Messages in the compact form of the protocol: content blocks instead of provider fields."""

import json
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]


def short_values(state: Any) -> Any:
    """Return a state with its messages in the compact form."""
    if not isinstance(state, Mapping):
        return state
    shown = {key: value for key, value in state.items() if key != "__interrupt__"}
    if isinstance(shown.get("messages"), list):
        shown["messages"] = [short_message(message) for message in shown["messages"]]
    return shown


def short_message(message: Any) -> Any:
    """Return a message without its empty fields; the content of an AI message becomes a list of blocks."""
    if not isinstance(message, Mapping):
        return message
    kept = {key: value for key, value in message.items() if key in _ALWAYS or value not in _EMPTY}
    kept.pop("usage_metadata", None)
    if message.get("type") != "ai":
        return kept
    extra = {key: value for key, value in kept.pop("additional_kwargs", {}).items() if key != _REASONING}
    about = {**message.get("response_metadata", {}), "output_version": "v1"}
    return {
        **kept,
        "content": blocks_of(message),
        "response_metadata": about,
        **({"additional_kwargs": extra} if extra else {}),
    }


_ALWAYS = ("type", "content", "id", "tool_call_id", "status")
_EMPTY: tuple[Any, ...] = (None, "", [], {})
_REASONING = "reasoning_content"


def blocks_of(message: Mapping[str, Any]) -> list[Json]:
    """Return the content of an AI message as blocks: reasoning, text, tool calls."""
    blocks: list[Json] = []
    for kind, value in pieces_of(message):
        blocks.append({"type": kind, kind: value} if isinstance(value, str) else value)
    blocks += [tool_call_block(call) for call in message.get("tool_calls") or []]
    blocks += [{**call, "type": "invalid_tool_call"} for call in message.get("invalid_tool_calls") or []]
    return blocks


def tool_call_block(call: Mapping[str, Any]) -> Json:
    """Return a tool call as a finished block."""
    return {"type": "tool_call", "id": call.get("id"), "name": call.get("name"), "args": call.get("args")}


def parsed_call(call_id: str | None, name: str | None, args: str) -> Json:
    """Return the block of a call whose arguments are JSON text."""
    try:
        parsed = json.loads(args or "{}")
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        problem = "the arguments are not a JSON object"
        return {"type": "invalid_tool_call", "id": call_id, "name": name, "args": args, "error": problem}
    return {"type": "tool_call", "id": call_id, "name": name, "args": parsed}


def pieces_of(message: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the reasoning, text and other blocks of a message or chunk, in order.

    Each piece is ("text" or "reasoning", string), or ("block", dict) for anything else.
    """
    pieces: list[tuple[str, Any]] = []
    extra = message.get("additional_kwargs")
    thought = extra.get(_REASONING) if isinstance(extra, Mapping) else None
    if isinstance(thought, str) and thought:
        pieces.append(("reasoning", thought))
    content = message.get("content")
    for block in content if isinstance(content, list) else [content]:
        piece = _piece(block)
        if piece is not None:
            pieces.append(piece)
    return pieces


def _piece(block: Any) -> tuple[str, Any] | None:
    if isinstance(block, str):
        return ("text", block) if block else None
    if not isinstance(block, Mapping):
        return None
    match block.get("type"):
        case "text":
            return ("text", block["text"]) if block.get("text") else None
        case "reasoning" | "thinking":
            thought = block.get("reasoning") or block.get("thinking")
            return ("reasoning", thought) if isinstance(thought, str) and thought else None
        case "tool_call" | "tool_call_chunk" | "tool_use" | "input_json_delta" | "function_call":
            return None  # the message lists its calls outside its content
        case _:
            return ("block", dict(block))
