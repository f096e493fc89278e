"""Decodes the bytes of a chat-completions event stream into the chunks that LangChain's adapter accepts.

Text from the same socket read is joined into one chunk: this adds no latency, and under load, when reads
grow, chunks grow with them.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from deerflow.models.tool_call_assembly import BROKEN_CALLS, ToolCallAssembler

Json = dict[str, Any]
TEXT_KEYS = frozenset({"content", "reasoning_content", "reasoning"})
LONGEST_LINE_BYTES = 32 * 1024 * 1024
_GOOD_CODES = (None, "", 0, "0", 200, "200")
"""Success codes of servers that put a code into every answer."""
_NO_CHUNK = "the stream holds something that is no chunk: {}"


class MalformedStreamError(ValueError):
    """The response is not a valid chat-completions stream."""


@dataclass(slots=True)
class _Slot:
    """A string in a chunk to which later text may be appended."""

    kind: tuple[str, int]
    holder: Json
    key: str
    is_pure: bool
    """Whether the chunk has only this string, so that it may be appended to the previous chunk."""


class ChunkDecoder:
    """Decodes the bytes of one answer into chunks and tracks whether the answer is complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._open: _Slot | None = None
        self._usage: Json | None = None
        self._calls = ToolCallAssembler()
        self.has_begun = False
        """Whether a `data:` line was read."""
        self.is_done = False
        """Whether `[DONE]` was read."""
        self.is_finished = False
        """Whether a finish reason was read."""

    def feed(self, data: bytes) -> list[Json]:
        """Return the chunks that `data` completes."""
        self._open = None
        chunks: list[Json] = []
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > LONGEST_LINE_BYTES:
            raise MalformedStreamError(f"a line of the stream is longer than {LONGEST_LINE_BYTES} bytes")
        for line in lines:
            self._take_line(line, chunks)
        return chunks

    def whole(self, body: Json) -> list[Json]:
        """Return a non-streamed completion, sent although a stream was requested, as chunks."""
        chunks: list[Json] = []
        for choice in body.get("choices") or ():
            choice["delta"] = _numbered(choice.pop("message", None))
        self._take_chunk(body, chunks)
        return joined(chunks + self.finish())

    def finish(self) -> list[Json]:
        """Return the chunks left at the end of the stream: unterminated line, broken calls, token counts."""
        chunks: list[Json] = []
        if self._rest and not self.is_done:
            self._take_line(self._rest, chunks)
        self._rest = b""
        if broken := self._calls.broken():
            endings = {"tool_calls": found} if (found := self._calls.endings()) else {}
            chunks.append({"choices": [{"index": 0, "delta": {BROKEN_CALLS: broken, **endings}}]})
        if self._usage is not None:
            chunks.append(self._usage)
            self._usage = None
        return chunks

    def _take_line(self, line: bytes, chunks: list[Json]) -> None:
        if not line.startswith(b"data:") or self.is_done:  # comments, event names, blank lines
            return
        self.has_begun = True
        data = line[5:].strip()
        if data == b"[DONE]":
            self.is_done = True
        elif data:
            self._take_chunk(_parsed(data), chunks)

    def _take_chunk(self, chunk: Json, chunks: list[Json]) -> None:
        choices = self._tidy(chunk)
        if not choices:
            if error_in(chunk) or not self._has_usage(chunk):
                chunks.append(chunk)
            return
        self._has_usage(chunk)
        if self.is_finished and (end := _split_end(chunk, choices)):
            self._append(chunk, choices, chunks)
            self._append(end, end["choices"], chunks)
        else:
            self._append(chunk, choices, chunks)

    def _append(self, chunk: Json, choices: list[Json], chunks: list[Json]) -> None:
        """Add a chunk, or append its text to the previous chunk of the same read."""
        slot = _slot(choices)
        before = self._open
        if slot is not None and before is not None and slot.is_pure and slot.kind == before.kind:
            before.holder[before.key] += slot.holder[slot.key]
            return
        self._open = slot
        chunks.append(chunk)

    def _has_usage(self, chunk: Json) -> bool:
        """Remove the token counts: some servers repeat cumulative counts, and only the last are valid."""
        usage = chunk.pop("usage", None)
        if not usage or not isinstance(usage, dict):
            return False
        self._usage = {**chunk, "choices": [], "usage": usage}
        return True

    def _tidy(self, chunk: Json) -> list[Json]:
        """Fill in fields that some servers omit and the adapter requires."""
        choices = chunk.get("choices") or []
        for choice in choices:
            delta = choice.get("delta")
            if not delta:  # some servers send an empty list
                delta = choice["delta"] = {}
            elif not isinstance(delta, dict):
                raise MalformedStreamError(_NO_CHUNK.format(_shortly(delta)))
            if choice.get("usage") and not chunk.get("usage"):
                chunk["usage"] = choice["usage"]
            if choice.get("finish_reason"):
                self.is_finished = True
            if calls := delta.get("tool_calls"):
                self._take_calls(calls)
        return choices

    def _take_calls(self, calls: Any) -> None:
        if not _is_list_of_dicts(calls):
            raise MalformedStreamError(_NO_CHUNK.format(_shortly(calls)))
        for piece in calls:
            self._calls.take(piece)


def joined(chunks: list[Json]) -> list[Json]:
    """Return the chunks of one read with chunks that have no content joined to their neighbours.

    A short answer has a first chunk without text, the text, a last chunk without text and the token counts;
    each chunk costs the adapter as much as a page of text. The last chunk is never joined to the text: some
    clients ignore the content of a chunk that has a finish reason.
    """
    found: list[Json] = []
    for chunk in chunks:
        if not (found and _join(found, chunk)):
            found.append(chunk)
    return found


def has_substance(chunk: Json) -> bool:
    """Return whether a chunk has visible content: text, a tool call, or the end."""
    for choice in chunk.get("choices") or ():
        if choice.get("finish_reason") or any(
            value for key, value in choice["delta"].items() if key != "role"
        ):
            return True
    return bool(chunk.get("usage"))


def error_in(body: Json) -> object:
    """Return the error object that a server sent instead of an answer; None if there is none."""
    if body.get("error"):
        return body["error"]
    if body.get("choices"):
        return None
    refusal = body.get("base_resp")  # MiniMax's error format, with status 200
    if isinstance(refusal, dict) and refusal.get("status_code"):
        return {"message": refusal.get("status_msg"), "code": refusal["status_code"]}
    has_code = body.get("code") not in _GOOD_CODES
    is_flat = isinstance(body.get("message"), str) and (has_code or body.get("object") == "error")
    return body if is_flat else None


def tidy_whole(body: Json) -> None:
    """Fill in fields that some servers omit from a non-streamed answer's tool calls; reject other bodies."""
    for choice in body["choices"]:
        pieces = ToolCallAssembler()
        message = _numbered(choice.get("message"))
        if not isinstance(message, dict) or not _is_list_of_dicts(message.get("tool_calls")):
            raise MalformedStreamError(f"there is no message in it: {_shortly(message)}")
        for call in message.get("tool_calls") or ():
            pieces.take(call)
            del call["index"]
            function = call["function"]
            arguments = _object_or_broken(function.get("arguments") or "{}")
            function |= {"name": function.get("name", ""), "arguments": arguments}


def _object_or_broken(arguments: str) -> str:
    """Make arguments that are not a JSON object invalid JSON, so that the adapter marks the call invalid.

    The adapter parses `true` or `[1]` as arguments and then fails on the whole answer.
    """
    return arguments if arguments.lstrip()[:1] == "{" else f"{arguments}]"


def has_choices(body: Json) -> bool:
    """Return whether a non-streamed answer has valid `choices`."""
    return body.get("choices") is not None and _is_list_of_dicts(body["choices"])


def _numbered(message: Any) -> Any:
    """Set the indices of a non-streamed message's tool calls: there each entry is a separate call."""
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    if isinstance(calls, list):
        message["tool_calls"] = calls = [call for call in calls if isinstance(call, dict)]
        for number, call in enumerate(calls):
            call["index"] = number
    return message


def _join(found: list[Json], chunk: Json) -> bool:
    """Join a chunk to the last one if one of the two has no content; return whether it did."""
    before, here = _only_choice(found[-1]), _only_choice(chunk)
    if before is None:
        return False
    if here is None:
        is_counts = not chunk.get("choices") and bool(chunk.get("usage")) and not found[-1].get("usage")
        if is_counts:
            found[-1]["usage"] = chunk["usage"]
        return is_counts
    if before.get("finish_reason"):
        return False
    if _is_bare(before):
        here["delta"] = {**before["delta"], **here["delta"]}
        found[-1] = chunk
        return True
    return False


def _split_end(chunk: Json, choices: list[Json]) -> Json | None:
    """Move the finish reasons of a chunk that also has content to a new chunk; return that chunk."""
    ends = []
    for choice in choices:
        if choice.get("finish_reason") and not _is_bare(choice):
            ends.append({key: value for key, value in choice.items() if key != "logprobs"} | {"delta": {}})
            choice["finish_reason"] = None
    return {**chunk, "choices": ends} if ends else None


def _only_choice(chunk: Json) -> Json | None:
    choices: list[Json] = chunk.get("choices") or []
    return choices[0] if len(choices) == 1 and not choices[0].get("logprobs") else None


def _is_bare(choice: Json) -> bool:
    return not any(value for key, value in choice["delta"].items() if key != "role")


def _parsed(data: bytes) -> Json:
    try:
        chunk = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise MalformedStreamError(f"the stream holds malformed JSON: {_preview(data)}") from error
    if not isinstance(chunk, dict) or not _is_list_of_dicts(chunk.get("choices")):
        raise MalformedStreamError(_NO_CHUNK.format(_preview(data)))
    return chunk


def _is_list_of_dicts(found: object) -> bool:
    return found is None or (isinstance(found, list) and all(isinstance(one, dict) for one in found))


def _preview(data: bytes) -> str:
    return repr(data[:120].decode(errors="replace"))


def _shortly(found: object) -> str:
    return f"{found!r:.120}"


def _slot(choices: list[Json]) -> _Slot | None:
    choice = choices[0]
    if len(choices) > 1 or choice.get("finish_reason") or choice.get("logprobs"):
        return None
    present = [(key, value) for key, value in choice["delta"].items() if value and key != "role"]
    if len(present) != 1:
        return None
    key, value = present[0]
    if key in TEXT_KEYS and isinstance(value, str):
        return _Slot((key, 0), choice["delta"], key, is_pure=True)
    if key == "tool_calls" and len(value) == 1:
        return _call_slot(value[0])
    return None


def _call_slot(call: Json) -> _Slot | None:
    function = call["function"]
    if not isinstance(function.get("arguments"), str):
        return None
    is_pure = not call.get("id") and not function.get("name")
    return _Slot(("arguments", call["index"]), function, "arguments", is_pure=is_pure)
