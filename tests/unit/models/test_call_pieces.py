"""Tool calls in pieces: each piece to its call, whatever numbers and ids a server gives."""

import time
from collections.abc import Iterable
from typing import Any

import pytest
from langchain_core.utils.json import parse_partial_json

from deerflow.models.tool_call_assembly import ToolCallAssembler, rejecting_suffix

Piece = dict[str, Any]


def piece(arguments: Any = None, *, name: str | None = None, **more: Any) -> Piece:
    return {"function": {"name": name, "arguments": arguments}, **more}


def joined(pieces: ToolCallAssembler, *given: Piece) -> list[tuple[str, str, str]]:
    """Return id, name and arguments of each call as the adapter puts them together: by number."""
    calls: dict[int, list[str]] = {}
    for one in given:
        pieces.take(one)
        call = calls.setdefault(one["index"], ["", "", ""])
        call[0] = call[0] or one["id"]
        assert one.get("id") in (None, "", call[0])
        call[1] += one["function"].get("name") or ""
        call[2] += one["function"].get("arguments") or ""
    return [(call[0], call[1], call[2]) for _, call in sorted(calls.items())]


def two_calls(*, indexes: Iterable[Any], more: Iterable[Piece] = ()) -> list[Piece]:
    first, second = ({} if index is None else {"index": index} for index in indexes)
    return [piece("", name="ls", id="a", **first), piece("", name="rm", id="b", **second), *more]


NO_INDEX = two_calls(
    indexes=[None, None],
    more=[piece('{"p":', id="a"), piece('{"p":', id="b"), piece(" 1}", id="a"), piece(" 2}", id="b")],
)
INTERLEAVED = two_calls(indexes=[0, 1], more=[piece('{"p": 2}', index=1), piece('{"p": 1}', index=0)])
WORDS_FOR_INDEXES = two_calls(
    indexes=["0", "1"], more=[piece('{"p": 2}', index="1"), piece('{"p": 1}', index="0")]
)
ALWAYS_INDEX_ZERO = two_calls(
    indexes=[0, 0], more=[piece('{"p": 1}', index=0, id="a"), piece('{"p": 2}', index=0, id="b")]
)
NAMES_AND_IDS_AGAIN = two_calls(
    indexes=[0, 1],
    more=[piece('{"p": 1}', name="ls", index=0, id="a"), piece('{"p": 2}', name="rm", index=1, id="b")],
)
A_NEW_ID_EACH_TIME = two_calls(
    indexes=[0, 1],
    more=[piece('{"p":', index=0, id="x"), piece(" 1}", index=0, id="y"), piece('{"p": 2}', index=1, id="z")],
)


@pytest.mark.parametrize(
    "given",
    [NO_INDEX, INTERLEAVED, WORDS_FOR_INDEXES, ALWAYS_INDEX_ZERO, NAMES_AND_IDS_AGAIN, A_NEW_ID_EACH_TIME],
)
def test_calls_stay_apart_however_a_server_numbers_them(given: list[Piece]) -> None:
    pieces = ToolCallAssembler()

    calls = joined(pieces, *given)

    assert calls == [("a", "ls", '{"p": 1}'), ("b", "rm", '{"p": 2}')]
    assert pieces.broken() == []


@pytest.mark.parametrize("index", [{}, {"index": 0}])
def test_calls_without_an_id_get_one_each(index: Piece) -> None:
    calls = joined(ToolCallAssembler(), *(piece('{"p": 1}', name="ls", **index) for _ in range(2)))

    assert [call[1:] for call in calls] == [("ls", '{"p": 1}')] * 2
    assert len({call[0] for call in calls} - {""}) == 2


@pytest.mark.parametrize("index", [{}, {"index": 0}])
def test_a_name_that_is_said_with_every_piece_makes_one_call(index: Piece) -> None:
    given = [piece(said, name="ls", **index) for said in ("", '{"p": {"q":', " 1}", "}", "")]

    calls = joined(ToolCallAssembler(), *given)

    assert [call[1:] for call in calls] == [("ls", '{"p": {"q": 1}}')]


def test_one_id_for_two_calls_does_not_make_one_of_them() -> None:
    given = [
        piece('{"p": 1}', name="ls", index=0, id="same"),
        piece('{"p": 2}', name="ls", index=1, id="same"),
    ]

    calls = joined(ToolCallAssembler(), *given)

    assert [call[2] for call in calls] == ['{"p": 1}', '{"p": 2}']


def test_a_call_that_broke_off_is_named_also_when_the_server_gave_it_no_id() -> None:
    pieces = ToolCallAssembler()

    ((call_id, _, _),) = joined(pieces, piece('{"path": "/mnt', name="rm", index=0))

    assert call_id
    assert pieces.broken() == [call_id]


def test_arguments_that_come_as_an_object_are_written_out() -> None:
    calls = joined(ToolCallAssembler(), piece({"p": "路"}, name="ls", id="a"))

    assert calls == [("a", "ls", '{"p":"路"}')]


def test_numbers_for_ids_and_odd_types_are_understood_or_left_out() -> None:
    pieces = ToolCallAssembler()

    calls = joined(pieces, piece('{"p":', name="ls", id=7, index=[]), piece(" 1}", id=7, index={}))
    pieces.take({"id": "b", "function": {"name": 3, "arguments": 4}})

    assert calls == [("7", "ls", '{"p": 1}')]
    assert pieces.broken() == []


@pytest.mark.parametrize("function", [None, "ls", []])
def test_a_piece_without_a_function_does_no_harm(function: Any) -> None:
    pieces = ToolCallAssembler()

    pieces.take({"id": "a", "function": function})

    assert pieces.broken() == []


@pytest.mark.parametrize(
    "arguments",
    [
        "word " * 16_000,
        '{"a": "' + "x" * 80_000 + '" garbage ' + "y" * 20_000,
        '{"a": "' + "x" * 80_000 + "\\",
        '{"a": ' + "[" * 900 + "x" * 80_000,
        '{"a": [{"b": "c"' + " z" * 40_000,
    ],
    ids=["text", "garbage behind a text", "open text", "brackets", "open object"],
)
def test_a_long_broken_call_is_given_up_in_linear_time(arguments: str) -> None:
    started = time.process_time()  # not what others on this machine take

    ended = parse_partial_json(arguments + rejecting_suffix(arguments))

    assert ended is None
    assert time.process_time() - started < 2
