"""The messages channel: turns message chunks into events of content blocks that start, grow and finish.

Messages have the compact form of the protocol: content blocks instead of provider fields.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deerflow.gateway.protocol.events import Draft, Namespace

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
    metadata = {**message.get("response_metadata", {}), "output_version": "v1"}
    return {
        **kept,
        "content": blocks_of(message),
        "response_metadata": metadata,
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
    for call in message.get("tool_calls") or []:
        blocks.append({"type": "tool_call", **{key: call.get(key) for key in ("id", "name", "args")}})
    blocks += [{**call, "type": "invalid_tool_call"} for call in message.get("invalid_tool_calls") or []]
    return blocks


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
        piece = _content_piece(block)
        if piece is not None:
            pieces.append(piece)
    return pieces


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message."""
    return "".join(value for kind, value in pieces_of(message) if kind == "text")


def _content_piece(block: Any) -> tuple[str, Any] | None:
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


METHOD = "messages"
WITHDRAWN = "The model's answer broke off; it is being asked again."


@dataclass(slots=True)
class _Block:
    kind: str
    key: object
    text: str = ""
    content: Json = field(default_factory=dict)

    def finished(self) -> Json:
        match self.kind:
            case "text" | "reasoning":
                return {"type": self.kind, self.kind: self.text}
            case "tool":
                return parsed_call(self.content.get("id"), self.content.get("name"), self.text)
            case _:
                return self.content


@dataclass(slots=True)
class _Answer:
    """A message that is being streamed."""

    id: str
    blocks: list[_Block] = field(default_factory=list)
    usage: Json = field(default_factory=dict)
    metadata: Json = field(default_factory=dict)


class MessageStream:
    """Produces the message events of one run, one message at a time per namespace."""

    def __init__(self) -> None:
        self._open: dict[Namespace, _Answer] = {}
        self._finished: set[str] = set()
        """Ids of messages that are finished."""

    def events_for(self, namespace: Namespace, message: Mapping[str, Any]) -> list[Draft]:
        """Return the events for a message or a chunk."""
        match message.get("type"):
            case "AIMessageChunk":
                return self._piece(namespace, message)
            case "ai":
                return self._whole(namespace, message)
            case "tool":
                return self._result(namespace, message)
            case "remove":
                return self._withdrawn(namespace, str(message.get("id")))
            case _:
                return []  # user messages are not streamed

    def close(self) -> list[Draft]:
        """Return the finish events of all unfinished messages."""
        return [draft for namespace in list(self._open) for draft in self._finish(namespace)]

    def _piece(self, namespace: Namespace, chunk: Mapping[str, Any]) -> list[Draft]:
        message_id = str(chunk.get("id"))
        if message_id in self._finished:
            return []
        drafts: list[Draft] = []
        answer = self._open.get(namespace)
        if answer is None or answer.id != message_id:
            # Only the start event of a message has its id, so the previous message must end first.
            drafts += self._finish(namespace)
            answer = self._open[namespace] = _Answer(message_id)
            drafts.append(Draft(METHOD, _start("ai", message_id), namespace))
        drafts += [Draft(METHOD, data, namespace) for data in _grown(answer, chunk)]
        _add_up(answer.usage, chunk.get("usage_metadata") or {})
        answer.metadata.update(chunk.get("response_metadata") or {})
        if chunk.get("chunk_position") == "last":
            drafts += self._finish(namespace)
        return drafts

    def _finish(self, namespace: Namespace) -> list[Draft]:
        answer = self._open.pop(namespace, None)
        if answer is None:
            return []
        self._finished.add(answer.id)
        blocks = [block.finished() for block in answer.blocks]
        return [
            *(Draft(METHOD, _block("finish", index, block), namespace) for index, block in enumerate(blocks)),
            Draft(METHOD, _end(answer.usage, answer.metadata), namespace),
        ]

    def _withdrawn(self, namespace: Namespace, message_id: str) -> list[Draft]:
        """Return the end of a message that was cut off and is being retried."""
        answer = self._open.get(namespace)
        if answer is None or answer.id != message_id:
            return []
        del self._open[namespace]
        self._finished.add(message_id)
        error = {"event": "error", "message": WITHDRAWN, "code": "model_retry"}
        return [Draft(METHOD, error, namespace)]

    def _whole(self, namespace: Namespace, message: Mapping[str, Any]) -> list[Draft]:
        message_id = str(message.get("id"))
        answer = self._open.get(namespace)
        if answer is not None and answer.id == message_id:
            return self._finish(namespace)
        if message_id in self._finished:
            return []
        self._finished.add(message_id)
        drafts = [*self._finish(namespace), Draft(METHOD, _start("ai", message_id), namespace)]
        for index, block in enumerate(blocks_of(message)):
            drafts += [Draft(METHOD, data, namespace) for data in _at_once(index, block)]
        end = _end(message.get("usage_metadata") or {}, message.get("response_metadata") or {})
        return [*drafts, Draft(METHOD, end, namespace)]

    def _result(self, namespace: Namespace, message: Mapping[str, Any]) -> list[Draft]:
        message_id, call = str(message.get("id")), str(message.get("tool_call_id"))
        if message_id in self._finished:
            return []
        self._finished.add(message_id)
        text = text_of(message)
        content = {"type": "text", "text": text}
        events = [
            {**_start("tool", message_id), "tool_call_id": call},
            _block("start", 0, {"type": "text", "text": ""}),
            _block("delta", 0, content),
            _block("finish", 0, content),
            {"event": "message-finish", "metadata": {}},
        ]
        return [Draft(METHOD, data, (*namespace, f"tools:{call}")) for data in events]


def _grown(answer: _Answer, chunk: Mapping[str, Any]) -> list[Json]:
    events: list[Json] = []
    for kind, value in pieces_of(chunk):
        if kind == "block":
            events += _opened(answer, _Block("block", None, content=value), value)
            continue
        last = answer.blocks[-1] if answer.blocks else None
        if last is None or last.kind != kind:
            events += _opened(answer, last := _Block(kind, kind), {"type": kind, kind: ""})
        last.text += value
        events.append(_delta(len(answer.blocks) - 1, {"type": f"{kind}-delta", kind: value}))
    for piece in chunk.get("tool_call_chunks") or []:
        events += _grown_call(answer, piece)
    return events


def _grown_call(answer: _Answer, piece: Mapping[str, Any]) -> list[Json]:
    events: list[Json] = []
    key = ("tool", piece.get("index") if piece.get("index") is not None else piece.get("id"))
    index = next((at for at, block in enumerate(answer.blocks) if block.key == key), None)
    if index is None:
        index = len(answer.blocks)
        block = _Block("tool", key, content={"id": piece.get("id"), "name": piece.get("name")})
        start = {"type": "tool_call_chunk", **block.content, "args": "", "index": index}
        events += _opened(answer, block, start)
    more = piece.get("args") or ""
    if more:
        answer.blocks[index].text += more
        # The Python client reads `delta`; the JavaScript client reads only `content` for arguments.
        known = {"content": {"type": "tool_call_chunk", "args": more}}
        events.append({**_delta(index, {"type": "tool-call-delta", "args": more}), **known})
    return events


def _opened(answer: _Answer, block: _Block, content: Json) -> list[Json]:
    answer.blocks.append(block)
    return [_block("start", len(answer.blocks) - 1, content)]


def _at_once(index: int, block: Json) -> list[Json]:
    """Return the events of a block that arrives whole."""
    match block["type"]:
        case "text" | "reasoning" as kind:
            grown = [_delta(index, {"type": f"{kind}-delta", kind: block[kind]})]
            return [_block("start", index, {"type": kind, kind: ""}), *grown, _block("finish", index, block)]
        case "tool_call" | "invalid_tool_call":
            start = {"type": "tool_call_chunk", "id": block["id"], "name": block["name"], "args": ""}
            return [_block("start", index, {**start, "index": index}), _block("finish", index, block)]
        case _:
            return [_block("start", index, block), _block("finish", index, block)]


def _start(role: str, message_id: str) -> Json:
    return {"event": "message-start", "role": role, "id": message_id}


def _block(phase: str, index: int, content: Json) -> Json:
    return {"event": f"content-block-{phase}", "index": index, "content": content}


def _delta(index: int, delta: Json) -> Json:
    return {"event": "content-block-delta", "index": index, "delta": delta}


def _end(usage: Mapping[str, Any], metadata: Mapping[str, Any]) -> Json:
    end: Json = {"event": "message-finish"}
    if usage:
        end["usage"] = dict(usage)
    if metadata:
        end["metadata"] = dict(metadata)
    return end


def _add_up(total: Json, more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, int):
            total[key] = total.get(key, 0) + value
        else:
            total[key] = value
