"""Finds tool calls that a model wrote as JSON into the text of its answer.

Small models know that they should call a tool but not how: they write the call in a fence, in tags of some
name, or as a bare object. The text is read while it streams. Only what may be a call is held back, as long
as it may be one, and each character is read once.

What counts as a call: an object (or an array of objects) that names a tool on offer with arguments that fit
its schema, and that begins a line, is all that a fence holds, or follows a tag. What is shown on purpose is
no call: JSON inside other code, and an untagged call with more than a few sentences behind it.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from deerflow.models.offered_tools import ARGUMENT_KEYS, BESIDE, NAME_KEYS, WRAPPERS, OfferedTools, TextCall

MOST_PROSE_CHARS = 300
"""Text behind an untagged call beyond this explains it: then it is shown on purpose."""
MOST_HELD_CHARS = 400_000
MOST_HEAD_CHARS = 400
"""By then an object has named its tool, if it is a call."""
MOST_GLUE_CHARS = 200
FIRST_KEYS = frozenset({*NAME_KEYS, *ARGUMENT_KEYS, *WRAPPERS, *BESIDE, "tool_calls"})
_OPENER = re.compile(r"(?m)^[ \t]*(?=`{1,3}|[{\[])|<(?=[A-Za-z]|\Z)")
_FENCE_OR_TAG = re.compile(r"(?m)^[ \t]*(?=`{1,3})|<(?=[A-Za-z]|\Z)")
_GLUE = re.compile(r"(?:[\s,;]|`{1,3}(?:[\w-]*)|</?(?:[\w-]{0,40}>?))*")
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
"""What stands in these is shown on purpose, or not yet meant."""
_CLOSERS = {"{": "}", "[": "]"}


@dataclass(frozen=True, slots=True)
class Found:
    """What an answer held: text that is still to be shown, the calls, and the words they were made of."""

    text: str = ""
    calls: Sequence[TextCall] = ()
    raw: str = ""


class CallFinder:
    """Reads one answer piece by piece."""

    def __init__(self, tools: OfferedTools, *, finds_untagged: bool = True) -> None:
        self._tools = tools
        self._finds_untagged = finds_untagged
        self._buffer = ""
        """What was read and neither shown nor withheld."""
        self._begins_line = True
        self._candidate: _Candidate | None = None
        self._unread: _Fenced | _Tagged | _Value | None = None
        """Code or a thought that is passed on as it is, up to its end."""
        self._is_in_fence = False
        """The last call stands in a fence that is still open."""
        self._calls: list[TextCall] = []
        self._is_tagged = False
        self._withheld: list[str] = []
        """All since the first call."""
        self._prose_chars = 0
        self._is_off = False

    def feed(self, text: str) -> str:
        """Return what may be shown now."""
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

    def finish(self, *, is_cut: bool = False) -> Found:
        """Return the rest, once the answer has ended.

        Args:
            is_cut: It ended at the output limit: a call without its last bracket may then lack more.
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
            return Found("".join(out))
        return Found("".join(out), tuple(self._calls), "".join(self._withheld).strip())

    def _step(self, out: list[str]) -> bool:
        """Take the next thing out of the buffer; False when more has to come first."""
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
        """Show the text before the next thing that may be a call."""
        found = self._next_opener()
        if found is not None:
            self._pass_on(found, out)
            self._candidate = _Candidate(self._tools)
            return True
        last = self._buffer.rfind("\n") + 1
        # An indent may stand before a call: it is shown with what follows it.
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
        self._begins_line = True  # the next call may stand right behind this one

    def _leave_fence(self) -> bool:
        """Take the end of the fence in which a call stood; more calls may come before it."""
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
    """The rest of a fence."""

    def take(self, text: str, begins_line: bool) -> tuple[int, bool]:
        """Return how much of the text belongs to it for sure, and whether that is all."""
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
    """The rest of what stands between two tags."""

    end: str

    def take(self, text: str, begins_line: bool) -> tuple[int, bool]:
        """Return how much of the text belongs to it for sure, and whether that is all."""
        found = text.find(self.end)
        if found >= 0:
            return found + len(self.end), True
        begun = text.rfind("<", max(0, len(text) - len(self.end)))
        return (begun if begun >= 0 and self.end.startswith(text[begun:]) else len(text)), False


class _Value:
    """The rest of a JSON value."""

    def __init__(self) -> None:
        self._end = _JsonEnd()

    def take(self, text: str, begins_line: bool) -> tuple[int, bool]:
        """Return how much of the text belongs to it for sure, and whether that is all."""
        end = self._end.feed(text)
        return (len(text), False) if end is None else (end, True)


@dataclass(slots=True)
class _JsonEnd:
    """Finds where a JSON value ends, however it is cut into pieces."""

    stack: list[str] = field(default_factory=list)
    is_in_string: bool = False
    has_begun: bool = False
    _is_escaped: bool = False

    def feed(self, text: str) -> int | None:
        """Return the index behind the value; None when it goes on."""
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
    """Text that may be a call: tags and fences, and a JSON value behind them."""

    def __init__(self, tools: OfferedTools) -> None:
        self._tools = tools
        self._pieces: list[str] = []
        self._length = 0
        self._glue = ""
        self._value: _JsonEnd | None = None
        self._head = ""
        self._is_named = False
        self.calls: Sequence[TextCall] | None = None
        self.is_tagged = False
        self.is_in_fence = False

    @property
    def text(self) -> str:
        """All that was read so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def feed(self, piece: str) -> int | None:
        """Return the index behind the call, or 0 when it is none; None when more has to come."""
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length > MOST_HELD_CHARS:
            return 0
        if self._value is None:
            begin = self._read_glue(piece)
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
        self.calls = self._tools.calls_in(_parsed(self.text[len(self._glue) : before + end]))
        return before + end if self.calls else 0

    def closed(self) -> object:
        """Return the value with the brackets that the model forgot at its end; None when that is not all."""
        if self._value is None or self._value.is_in_string or not self._value.stack:
            return None
        rest = "".join(_CLOSERS[each] for each in reversed(self._value.stack))
        said = re.sub(r"(?:\s|```|</[\w-]*>?)+\Z", "", self.text[len(self._glue) :])
        return _parsed(said + rest)

    def _read_glue(self, piece: str) -> int | None:
        """Return where the JSON begins in the piece; None when it has not begun."""
        known = len(self._glue)
        self._glue += piece[: MOST_GLUE_CHARS + 1]
        match = _GLUE.match(self._glue)
        end = match.end() if match else 0
        if self._glue[end : end + 1] not in _CLOSERS:
            return None
        self._glue = self._glue[:end]
        if self._is_over():
            return None
        tags = [tag.lower() for tag in _TAG.findall(self._glue)]
        self.is_tagged = any("tool" in tag or "function" in tag or "call" in tag for tag in tags)
        self.is_in_fence = len(_FENCE.findall(self._glue)) % 2 == 1
        return end - known

    def _is_over(self) -> bool:
        """Tell whether no call can come behind the glue."""
        if len(self._glue) > MOST_GLUE_CHARS or not _GLUE.fullmatch(self._glue):
            return True
        if any(tag.lower() in _UNREAD_TAGS for tag in _TAG.findall(self._glue)):
            return True
        return any(
            fence[1].lower() not in _CALL_FENCES and "tool" not in fence[1].lower()
            for fence in _FENCE.finditer(self._glue)
            if fence.end() < len(self._glue)  # else its language may not be there yet
        )

    def _may_name_a_tool(self, piece: str) -> bool:
        """Tell whether the value may be a call, from its first key and the name that it gives."""
        self._head += piece[: MOST_HEAD_CHARS + 1 - len(self._head)]
        match = _FIRST_KEY.match(self._head)
        if match is None or (match[2] is None and match.end() == len(self._head)):
            return len(self._head) <= MOST_HEAD_CHARS
        key, value = match[1], match[2]
        if value is None and self._head[match.end()] == '"':  # its end has not come yet
            return len(self._head) <= MOST_HEAD_CHARS
        self._is_named = True
        if key in NAME_KEYS and value is not None:
            return self._tools.has(value)
        return key in FIRST_KEYS


def _parsed(text: str) -> object:
    try:
        return json.loads(text, strict=False)  # models write line breaks into strings as they are
    except (ValueError, RecursionError):
        return None
