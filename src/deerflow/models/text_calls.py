"""Finds tool calls that a model wrote as JSON into the text of its answer.

Small models write a tool call into a code fence, between tags, or as a bare object instead of using the API.
The text is parsed while it streams. Only text that may still become a call is buffered, and each character
is parsed once.

A call is an object (or an array of objects) that names an offered tool with arguments that match its schema,
and that starts a line, is the whole content of a fence, or follows a tag. Intentional JSON is not a call:
JSON inside other code, and an untagged call that is followed by more than a few sentences.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]
NAME_KEYS = ("name", "tool", "tool_name", "function", "function_name", "action")
ARGUMENT_KEYS = (
    "arguments",
    "parameters",
    "args",
    "params",
    "input",
    "tool_input",
    "action_input",
    "kwargs",
)
WRAPPERS = ("function", "function_call", "tool_call")
OTHER_KEYS = frozenset({"id", "type", "index", "call_id"})
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
MOST_PROSE_CHARS = 300
"""More text than this after an untagged call explains the JSON: then it is intentional, not a call."""
MOST_HELD_CHARS = 400_000
MOST_HEAD_CHARS = 400
"""An object that is a call names its tool within this many characters."""
MOST_WRAPPER_CHARS = 200
FIRST_KEYS = frozenset({*NAME_KEYS, *ARGUMENT_KEYS, *WRAPPERS, *OTHER_KEYS, "tool_calls"})
_OPENER = re.compile(r"(?m)^[ \t]*(?=`{1,3}|[{\[])|<(?=[A-Za-z]|\Z)")
_FENCE_OR_TAG = re.compile(r"(?m)^[ \t]*(?=`{1,3})|<(?=[A-Za-z]|\Z)")
_WRAPPER = re.compile(r"(?:[\s,;]|`{1,3}(?:[\w-]*)|</?(?:[\w-]{0,40}>?))*")
_TAG = re.compile(r"<([A-Za-z][\w-]*)>")
_FENCE = re.compile(r"[ \t]*```[ \t]*([\w-]*)")
_FENCE_END = re.compile(r"(?m)^[ \t]*```[ \t]*$")
_FENCE_BEGUN = re.compile(r"[ \t]*`{0,3}[ \t]*")
_BEHIND_CALL = re.compile(r"[\s,;]*(```)?")
_FIRST_KEY = re.compile(r'[\s\[]*\{\s*"([^"\\]*)"\s*:\s*(?:"([^"\\]*)")?')
_STRUCTURE = re.compile(r'["\\{}\[\]]')
_CALL_FENCES = frozenset({"", "json", "json5", "jsonc", "xml", "text", "plaintext"})
_UNREAD_TAGS = frozenset(
    {"pre", "code", "script", "textarea", "example", "examples", "think", "thinking", "thought", "reasoning"}
)
"""JSON inside these tags is an example or part of the reasoning, not a call."""
_CLOSERS = {"{": "}", "[": "]"}


@dataclass(frozen=True, slots=True)
class TextCall:
    """A call of an offered tool, with arguments that match its schema."""

    name: str
    arguments: Json


class OfferedTools:
    """Names and schemas of the tools, from the formats in which they are sent to providers."""

    def __init__(self, tools: Sequence[Any]) -> None:
        self._schemas: dict[str, Json] = {}
        for tool in tools:
            if not isinstance(tool, Mapping):
                continue
            about = tool.get("function", tool)
            schema = about.get("parameters") or about.get("input_schema") or {}
            if isinstance(about.get("name"), str) and isinstance(schema, Mapping):
                self._schemas[about["name"]] = schema

    def __bool__(self) -> bool:
        return bool(self._schemas)

    def has(self, name: str) -> bool:
        """Return whether a tool of this name is offered."""
        return name in self._schemas

    def calls_in(self, value: object) -> Sequence[TextCall] | None:
        """Return the calls that a JSON value represents; None if any part of it is not a call."""
        if isinstance(value, Mapping) and isinstance(value.get("tool_calls"), list):
            value = value["tool_calls"]
        items = value if isinstance(value, list) else [value]
        calls = [self._call(item) for item in items]
        return [call for call in calls if call] if calls and all(calls) else None

    def _call(self, item: object) -> TextCall | None:
        if not isinstance(item, Mapping):
            return None
        for key in WRAPPERS:
            if isinstance(item.get(key), Mapping):
                return self._call(item[key])
        name_key = next((key for key in NAME_KEYS if isinstance(item.get(key), str)), None)
        name = item[name_key] if name_key else None
        if name_key is None or name not in self._schemas:
            return None
        held = next((key for key in ARGUMENT_KEYS if key in item), None)
        others = {key: value for key, value in item.items() if key != name_key and key not in OTHER_KEYS}
        given = item[held] if held else others
        if isinstance(given, str):
            given = _parsed(given)
        arguments = fitted(given, self._schemas[name]) if isinstance(given, Mapping) else None
        return TextCall(name, arguments) if arguments is not None else None


def fitted(given: Json, schema: Json) -> Json | None:
    """Return the arguments converted to match a schema; None if they do not match.

    A nearly correct name is corrected, and a `description`, which is only for users, may be missing.
    """
    properties: Json = schema.get("properties") or {}
    required = [name for name in schema.get("required") or () if name in properties]
    arguments = {key: value for key, value in given.items() if key in properties}
    missing = [name for name in required if name not in arguments]
    for key in [key for key in given if key not in properties]:
        name = next((name for name in missing if name in key.lower() or key.lower() in name), None)
        if name is None:
            if schema.get("additionalProperties"):
                arguments[key] = given[key]
                continue
            return None
        arguments[name] = given[key]
        missing.remove(name)
    if "description" in missing:
        arguments["description"] = ""
        missing.remove("description")
    typed = {key: _typed(value, properties.get(key, {}), schema) for key, value in arguments.items()}
    return typed if not missing and _Mismatch not in map(type, typed.values()) else None


class _Mismatch:
    """Marks a value that does not match its schema."""


def _typed(value: Any, about: Json, schema: Json) -> Any:
    """Return a value converted to the type in its schema; a `_Mismatch` if that is not possible."""
    kinds = _kinds(about, schema)
    if "enum" in about and value not in about["enum"]:
        return _Mismatch()
    if not kinds or any(_is_of(value, kind) for kind in kinds):
        return value
    if isinstance(value, str):
        try:
            read = json.loads(value)
        except ValueError:
            return _Mismatch()
        return read if any(_is_of(read, kind) for kind in kinds) else _Mismatch()
    return _Mismatch()


def _kinds(about: Json, schema: Json) -> list[str]:
    if "$ref" in about:
        about = (schema.get("$defs") or {}).get(str(about["$ref"]).rpartition("/")[2], {})
    if isinstance(about.get("anyOf"), list):
        return [kind for each in about["anyOf"] for kind in _kinds(each, schema)]
    kind = about.get("type")
    return [kind] if isinstance(kind, str) else list(kind or ())


def _is_of(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, float) and kind == "integer":
        return value.is_integer()
    return isinstance(value, _TYPES.get(kind, ()))


@dataclass(frozen=True, slots=True)
class FoundCalls:
    """Result of parsing an answer: remaining text to emit, the calls, and the raw text of the calls."""

    text: str = ""
    calls: Sequence[TextCall] = ()
    raw: str = ""


class CallFinder:
    """Incremental parser of one answer."""

    def __init__(self, tools: OfferedTools, *, finds_untagged: bool = True) -> None:
        self._tools = tools
        self._finds_untagged = finds_untagged
        self._buffer = ""
        """Received text that is neither emitted nor withheld yet."""
        self._begins_line = True
        self._candidate: _Candidate | None = None
        self._unread: _Fenced | _Tagged | _Value | None = None
        """Code or reasoning that is emitted unparsed up to its end."""
        self._is_in_fence = False
        """Whether the last call is inside a fence that is still open."""
        self._calls: list[TextCall] = []
        self._is_tagged = False
        self._withheld: list[str] = []
        """All text since the first call."""
        self._prose_chars = 0
        self._is_off = False

    def feed(self, text: str) -> str:
        """Parse more text; return what can be emitted now."""
        if self._is_off:
            return text
        out: list[str] = []
        self._buffer += text
        while self._buffer and not self._is_off and self._step(out):
            pass
        if self._is_off:
            out.append(self._buffer)
            self._buffer = ""
        return "".join(out)

    def finish(self, *, is_cut: bool = False) -> FoundCalls:
        """Return the remaining text and the calls at the end of the answer.

        Args:
            is_cut: The answer ended at the output limit: an unclosed call may then lack more than brackets.
        """
        out: list[str] = []
        candidate, self._candidate = self._candidate, None
        if candidate is not None:
            calls = None if is_cut else self._tools.calls_in(candidate.closed())
            if calls and self._may_be(candidate):
                self._accept(candidate, candidate.text, calls)
            else:
                self._emit(candidate.text, out)
        self._emit(self._buffer, out)
        self._buffer = ""
        if not self._calls:
            return FoundCalls("".join(out))
        return FoundCalls("".join(out), tuple(self._calls), "".join(self._withheld).strip())

    def _step(self, out: list[str]) -> bool:
        """Consume the next element of the buffer; return False if more input is needed."""
        if self._candidate is not None:
            return self._read_candidate(self._candidate, out)
        if self._unread is not None:
            end, is_over = self._unread.take(self._buffer, self._begins_line)
            self._pass_on(end, out)
            if is_over:
                self._unread = None
            return is_over
        if self._is_in_fence:
            return self._leave_fence()
        return self._scan(out)

    def _scan(self, out: list[str]) -> bool:
        """Emit the text before the next possible call."""
        found = self._next_opener()
        if found is not None:
            self._pass_on(found, out)
            self._candidate = _Candidate(self._tools)
            return True
        last = self._buffer.rfind("\n") + 1
        # A call may be indented: the indent is emitted with the text after it.
        is_indent = (last > 0 or self._begins_line) and self._buffer[last:].isspace()
        self._pass_on(last if is_indent else len(self._buffer), out)
        return False

    def _next_opener(self) -> int | None:
        opener = _OPENER if self._finds_untagged or self._is_tagged else _FENCE_OR_TAG
        start = 0
        while (match := opener.search(self._buffer, start)) is not None:
            if match.start() > 0 or self._begins_line or match[0] == "<":
                return match.start()
            start = match.end() + 1
        return None

    def _read_candidate(self, candidate: "_Candidate", out: list[str]) -> bool:
        piece, self._buffer = self._buffer, ""
        end = candidate.feed(piece)
        if end is None:
            return False
        self._candidate = None
        self._buffer = candidate.text
        if candidate.calls and self._may_be(candidate):
            self._buffer = candidate.text[end:]
            self._accept(candidate, candidate.text[:end], candidate.calls)
        elif (tag := _TAG.match(self._buffer)) and tag[1].lower() in _UNREAD_TAGS:
            self._unread = _Tagged(f"</{tag[1]}>")
            self._pass_on(tag.end(), out)
        elif (fence := _FENCE.match(self._buffer)) is not None:
            self._unread = _Fenced()
            self._pass_on(fence.end(), out)
        elif self._buffer.lstrip(" \t")[0] in _CLOSERS:
            self._unread = _Value()
        else:
            self._pass_on(1, out)
        return bool(self._buffer)

    def _may_be(self, candidate: "_Candidate") -> bool:
        return self._finds_untagged or self._is_tagged or candidate.is_tagged

    def _accept(self, candidate: "_Candidate", whole: str, calls: Sequence[TextCall]) -> None:
        self._calls += calls
        self._is_tagged = self._is_tagged or candidate.is_tagged
        self._is_in_fence = self._is_in_fence or candidate.is_in_fence
        self._prose_chars = 0
        self._withheld.append(whole)
        self._begins_line = True  # the next call may follow on the same line

    def _leave_fence(self) -> bool:
        """Consume the end of the fence around a call; more calls may come before it."""
        match = _BEHIND_CALL.match(self._buffer)
        end = match.end() if match else 0
        rest = self._buffer[end:]
        if (match and match[1]) or (rest and not rest.startswith("`")):
            self._is_in_fence = bool(rest[:1] and rest[0] in _CLOSERS and not (match and match[1]))
            self._withheld.append(self._buffer[:end])
            self._buffer = rest
            self._begins_line = True
            if self._is_in_fence:
                self._candidate = _Candidate(self._tools)
            return True
        return False

    def _pass_on(self, end: int, out: list[str]) -> None:
        shown, self._buffer = self._buffer[:end], self._buffer[end:]
        self._emit(shown, out)

    def _emit(self, text: str, out: list[str]) -> None:
        if not text:
            return
        self._begins_line = text.endswith("\n")
        if not self._calls:
            out.append(text)
            return
        self._withheld.append(text)
        self._prose_chars += sum(map(len, text.split()))
        if self._prose_chars > MOST_PROSE_CHARS and not self._is_tagged:
            out.append("".join(self._withheld))
            self._withheld, self._calls, self._is_off = [], [], True


class _Fenced:
    """The remaining content of a fence."""

    def take(self, text: str, begins_line: bool) -> tuple[int, bool]:
        """Return how many characters certainly belong to it, and whether it ends there."""
        match = _FENCE_END.search(text)
        if match is not None and match.start() == 0 and not begins_line:
            match = _FENCE_END.search(text, 1)
        if match is not None and match.end() < len(text):
            return match.end(), True
        last = text.rfind("\n") + 1
        may_end = (last > 0 or begins_line) and _FENCE_BEGUN.fullmatch(text, last)
        return (last if may_end else len(text)), False


@dataclass(frozen=True, slots=True)
class _Tagged:
    """The remaining content between two tags."""

    end: str

    def take(self, text: str, begins_line: bool) -> tuple[int, bool]:
        """Return how many characters certainly belong to it, and whether it ends there."""
        found = text.find(self.end)
        if found >= 0:
            return found + len(self.end), True
        begun = text.rfind("<", max(0, len(text) - len(self.end)))
        return (begun if begun >= 0 and self.end.startswith(text[begun:]) else len(text)), False


class _Value:
    """The remaining content of a JSON value."""

    def __init__(self) -> None:
        self._end = _JsonEnd()

    def take(self, text: str, begins_line: bool) -> tuple[int, bool]:
        """Return how many characters certainly belong to it, and whether it ends there."""
        end = self._end.feed(text)
        return (len(text), False) if end is None else (end, True)


@dataclass(slots=True)
class _JsonEnd:
    """Finds the end of a JSON value that arrives in arbitrary chunks."""

    stack: list[str] = field(default_factory=list)
    is_in_string: bool = False
    has_begun: bool = False
    _is_escaped: bool = False

    def feed(self, text: str) -> int | None:
        """Return the index after the value; None if it is incomplete."""
        position = 0
        if self._is_escaped:
            self._is_escaped, position = False, 1
        while (match := _STRUCTURE.search(text, position)) is not None:
            position = match.end()
            character = match[0]
            if self.is_in_string:
                if character == "\\":
                    if position >= len(text):
                        self._is_escaped = True
                    position += 1
                elif character == '"':
                    self.is_in_string = False
            elif character == '"':
                self.is_in_string = True
            elif character in _CLOSERS:
                self.stack.append(character)
                self.has_begun = True
            elif character in "}]":
                if not self.stack:
                    return position
                self.stack.pop()
                if not self.stack:
                    return position
        return None


class _Candidate:
    """Text that may be a call: tags and fences, then a JSON value."""

    def __init__(self, tools: OfferedTools) -> None:
        self._tools = tools
        self._pieces: list[str] = []
        self._length = 0
        self._wrapper = ""
        self._value: _JsonEnd | None = None
        self._head = ""
        self._is_named = False
        self.calls: Sequence[TextCall] | None = None
        self.is_tagged = False
        self.is_in_fence = False

    @property
    def text(self) -> str:
        """All text received so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def feed(self, piece: str) -> int | None:
        """Return the index after the call, 0 if it is not a call, None if more input is needed."""
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length > MOST_HELD_CHARS:
            return 0
        if self._value is None:
            begin = self._read_wrapper(piece)
            if begin is None:
                return 0 if self._is_over() else None
            piece = piece[begin:]
            self._value = _JsonEnd()
        before = self._length - len(piece)
        end = self._value.feed(piece)
        if not self._is_named and not self._may_name_a_tool(piece if end is None else piece[:end]):
            return 0
        if end is None:
            return None
        self.calls = self._tools.calls_in(_parsed(self.text[len(self._wrapper) : before + end]))
        return before + end if self.calls else 0

    def closed(self) -> object:
        """Return the value with its missing closing brackets added; None if more than those is missing."""
        if self._value is None or self._value.is_in_string or not self._value.stack:
            return None
        rest = "".join(_CLOSERS[each] for each in reversed(self._value.stack))
        said = re.sub(r"(?:\s|```|</[\w-]*>?)+\Z", "", self.text[len(self._wrapper) :])
        return _parsed(said + rest)

    def _read_wrapper(self, piece: str) -> int | None:
        """Return where the JSON starts in the chunk; None if it has not started."""
        known = len(self._wrapper)
        self._wrapper += piece[: MOST_WRAPPER_CHARS + 1]
        match = _WRAPPER.match(self._wrapper)
        end = match.end() if match else 0
        if self._wrapper[end : end + 1] not in _CLOSERS:
            return None
        self._wrapper = self._wrapper[:end]
        if self._is_over():
            return None
        tags = [tag.lower() for tag in _TAG.findall(self._wrapper)]
        self.is_tagged = any("tool" in tag or "function" in tag or "call" in tag for tag in tags)
        self.is_in_fence = len(_FENCE.findall(self._wrapper)) % 2 == 1
        return end - known

    def _is_over(self) -> bool:
        """Return whether no call can follow the tags and fences read so far."""
        if len(self._wrapper) > MOST_WRAPPER_CHARS or not _WRAPPER.fullmatch(self._wrapper):
            return True
        if any(tag.lower() in _UNREAD_TAGS for tag in _TAG.findall(self._wrapper)):
            return True
        return any(
            fence[1].lower() not in _CALL_FENCES and "tool" not in fence[1].lower()
            for fence in _FENCE.finditer(self._wrapper)
            if fence.end() < len(self._wrapper)  # otherwise its language may be incomplete
        )

    def _may_name_a_tool(self, piece: str) -> bool:
        """Return whether the value may be a call, judged by its first key and the tool name."""
        self._head += piece[: MOST_HEAD_CHARS + 1 - len(self._head)]
        match = _FIRST_KEY.match(self._head)
        if match is None or (match[2] is None and match.end() == len(self._head)):
            return len(self._head) <= MOST_HEAD_CHARS
        key, value = match[1], match[2]
        if value is None and self._head[match.end()] == '"':  # the string is incomplete
            return len(self._head) <= MOST_HEAD_CHARS
        self._is_named = True
        if key in NAME_KEYS and value is not None:
            return self._tools.has(value)
        return key in FIRST_KEYS


def _parsed(text: str) -> object:
    try:
        return json.loads(text, strict=False)  # models write raw line breaks into strings
    except (ValueError, RecursionError):
        return None
