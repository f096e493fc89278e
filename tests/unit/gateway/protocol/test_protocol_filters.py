"""Which events a reader of the thread protocol gets, and what it may ask for."""

from typing import Any

import pytest

from deerflow.errors import InvalidInputError
from deerflow.gateway.protocol.commands import CommandError, failure, parse_command
from deerflow.gateway.protocol.events import ProtocolEvent, parse_filter


def event(method: str = "values", *namespace: str, data: Any = None) -> ProtocolEvent:
    return ProtocolEvent(1, "e", method, namespace, 0, data)


@pytest.mark.parametrize(
    ("asked", "namespace", "is_wanted"),
    [
        ({}, ("tools:1", "x"), True),
        ({"namespaces": []}, ("tools:1",), True),
        ({"namespaces": [[]]}, ("tools:1",), True),
        ({"namespaces": [[]], "depth": 0}, (), True),
        ({"namespaces": [[]], "depth": 0}, ("tools:1",), False),
        ({"namespaces": [[]], "depth": 1}, ("tools:1",), True),
        ({"namespaces": [[]], "depth": 1}, ("tools:1", "tools:2"), False),
        ({"depth": 0}, ("tools:1", "tools:2"), True),
        ({"namespaces": [["tools"]]}, ("tools:1",), True),
        ({"namespaces": [["tools:2"]]}, ("tools:1",), False),
        ({"namespaces": [["tools:1"]]}, ("tools:1", "tools:7"), True),
        ({"namespaces": [["tools:1"]]}, (), False),
        ({"namespaces": [["tool"]]}, ("tools:1",), False),
        ({"namespaces": [["a"], ["tools"]]}, ("tools:1",), True),
    ],
)
def test_namespaces_match_by_prefix_and_depth(
    asked: dict[str, Any], namespace: tuple[str, ...], is_wanted: bool
) -> None:
    wanted = parse_filter({"channels": ["values"], **asked})

    assert wanted.matches(event("values", *namespace)) is is_wanted


def test_channels_choose_by_what_an_event_is() -> None:
    assert parse_filter({"channels": ["input"]}).matches(event("input.requested"))
    assert not parse_filter({"channels": ["lifecycle"]}).matches(event("values"))
    named = event("custom", data={"name": "x", "payload": 1})
    assert parse_filter({"channels": ["custom"]}).matches(named)
    assert parse_filter({"channels": ["custom:x"]}).matches(named)
    assert not parse_filter({"channels": ["custom:y"]}).matches(named)


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"channels": []},
        {"channels": "values"},
        {"channels": ["bogus"]},
        {"channels": ["debug"]},
        {"channels": [7]},
        {"channels": ["custom:"]},
        {"channels": ["values"] * 1000},
    ],
)
def test_unusable_channels_are_refused(body: Any) -> None:
    with pytest.raises(InvalidInputError, match="channels"):
        parse_filter(body)


def test_optional_parts_of_a_wrong_type_count_as_absent() -> None:
    wanted = parse_filter(
        {"channels": ["values"], "namespaces": ["x", [7]], "depth": -1, "since": "a", "extra": 1}
    )

    assert (wanted.prefixes, wanted.depth, wanted.since) == ((), None, None)
    assert parse_filter({"channels": ["values"], "since": True}).since is None


@pytest.mark.parametrize(
    "body",
    [None, [], "x", {}, {"id": 1}, {"method": "x"}, {"id": "1", "method": "x"}, {"id": True, "method": "x"}],
)
def test_a_command_needs_an_integer_id_and_a_method(body: Any) -> None:
    with pytest.raises(CommandError, match="integer id"):
        parse_command(body)


def test_a_failure_names_the_command_only_if_it_had_a_name() -> None:
    error = CommandError("invalid_argument", "no")

    assert failure({"x": 1}, error)["id"] is None
    assert failure(3, error) == {"type": "error", "id": 3, "error": "invalid_argument", "message": "no"}
