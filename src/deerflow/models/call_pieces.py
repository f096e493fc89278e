"""Keeps the pieces of streamed tool calls apart, however a server numbers them.

The adapter puts pieces together by their number. Some servers give none, or the same one to every call, or
no id, or a new id with every piece, or say a call's name again each time.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from deerflow.domain import new_id

Json = dict[str, Any]
MENDED_CHARS = 1000
"""Up to this length broken arguments are left to LangChain, which saves what it can of them."""
_WHOLE_TEXT = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_OPEN_TEXT = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(\\)?\Z', re.DOTALL)


@dataclass(slots=True)
class _Call:
    """What has come of one tool call."""

    id: str
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Its arguments are complete, so that whatever comes next is another call's."""
        last = next((piece.rstrip() for piece in reversed(self.arguments) if piece.strip()), "")
        # Reading all of a long call again with each of its pieces would take for ever.
        return last.endswith("}") and is_json("".join(self.arguments))


class CallPieces:
    """The tool calls of one answer, as far as they have come."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._numbers: dict[object, int] = {}
        """By the index that the server gives: our number of its latest call."""

    def take(self, piece: Json) -> None:
        """Put a piece to its call, and write into it what the adapter relies on: number, id, function."""
        function = _tidied(piece)
        name = function.get("name") or ""
        number = self._number(piece, function)
        piece["index"] = number
        call = self._calls[number]
        if piece.get("id") or not call.arguments:
            piece["id"] = call.id  # the first one counts, and without any nobody could answer the call
        if name and name == call.name:
            del function["name"]
        else:
            call.name += name
        call.arguments.append(function.get("arguments") or "")

    def broken(self) -> list[str]:
        """Return the ids of the calls whose arguments are no JSON."""
        return [call.id for call in self._calls if not is_json("".join(call.arguments))]

    def endings(self) -> list[Json]:
        """Return a last piece for each broken call that is long, see `hopeless_ending`."""
        whole = {number: "".join(call.arguments) for number, call in enumerate(self._calls)}
        return [
            {"index": number, "function": {"arguments": hopeless_ending(arguments)}}
            for number, arguments in whole.items()
            if len(arguments) > MENDED_CHARS and not is_json(arguments)
        ]

    def _number(self, piece: Json, function: Json) -> int:
        given, index, name = piece.get("id") or "", piece.get("index"), function.get("name") or ""
        number = self._numbers.get(index)
        if number is None or (given and given != self._calls[number].id):
            number = self._by_id(given, name, index)
        elif not given and self._begins_another(self._calls[number], function, index):
            number = None
        if number is None:
            number = len(self._calls)
            self._calls.append(_Call(given or f"call_{new_id().replace('-', '')}"))
        self._numbers[index] = number
        return number

    def _by_id(self, given: str, name: str, index: object) -> int | None:
        """Return the number of the call that a piece with an id of its own belongs to; None for a new one."""
        latest = self._numbers.get(index)
        if given and (index is None or latest is not None):
            known = next((at for at, call in enumerate(self._calls) if call.id == given), None)
            if known is not None:
                return known
        return None if name or index is None else latest

    @staticmethod
    def _begins_another(call: _Call, function: Json, index: object) -> bool:
        """Tell whether a piece without an id begins a call, though the last one with its index is `call`."""
        name = function.get("name")
        if not (name and call.name) or (name == call.name and not function.get("arguments")):
            return False  # who says the name with every piece says it with an empty last one too
        return call.is_whole or (index is None and name != call.name)


def is_json(arguments: str) -> bool:
    """Tell whether the arguments of a tool call are complete; a call without any has none."""
    try:
        json.loads(arguments or "{}", strict=False)  # as LangChain reads whole ones: line breaks may be bare
    except (ValueError, RecursionError):  # as deep as nobody means it
        return False
    return True


def hopeless_ending(arguments: str) -> str:
    """Return what makes broken arguments so wrong that LangChain gives up on them at once.

    To mend them it takes one character after another off their end and reads all of the rest again, which
    takes minutes for a long text. A bracket that closes nothing ends that.
    """
    open_text = _OPEN_TEXT.search(_WHOLE_TEXT.sub("", arguments))
    quote = "" if open_text is None else '"'
    escaped = "" if open_text is None or open_text[1] is None else "\\"
    return escaped + quote + "]" * (arguments.count("{") + arguments.count("[") + 1)


def _tidied(piece: Json) -> Json:
    """Return the name and arguments in a piece, all of it in the types that the adapter takes."""
    if not isinstance(piece.get("index"), int | str):
        piece["index"] = None
    if piece.get("id") is not None:
        piece["id"] = str(piece["id"])
    function = piece.get("function")
    if not isinstance(function, dict):
        function = piece["function"] = {}
    if isinstance(function.get("arguments"), dict):
        function["arguments"] = _written(function["arguments"])
    for key in ("name", "arguments"):
        if not isinstance(function.get(key), str):
            function.pop(key, None)
    return function


def _written(arguments: Json) -> str:
    """Return arguments that came as an object as others send them; a broken text for what is too deep."""
    try:
        return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return "{"
