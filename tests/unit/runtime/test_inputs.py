"""What clients send becomes what the graph takes, or a sentence about what is wrong."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.types import Command, Send

from deerflow.domain import RunRequest
from deerflow.errors import InvalidInputError
from deerflow.runtime.inputs import (
    check_goto,
    check_thread_id,
    graph_input,
    parse_messages,
    with_message_ids,
    with_update_ids,
)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("hello", [HumanMessage("hello")]),
        ({"role": "user", "content": "hi"}, [HumanMessage("hi")]),
        ([{"type": "human", "content": "hi", "id": "7"}], [HumanMessage("hi", id="7")]),
        ([{"type": "human", "role": "user", "content": "hi"}], [HumanMessage("hi")]),
        ([{"role": "assistant", "content": "yes"}], [AIMessage("yes")]),
        ([["system", "be kind"], "hi"], [SystemMessage("be kind"), HumanMessage("hi")]),
        ([], []),
    ],
)
def test_messages_are_taken_in_every_form_of_langchain(raw: Any, expected: list[Any]) -> None:
    assert parse_messages(raw) == expected


@pytest.mark.parametrize(
    ("raw", "index"),
    [
        ([{"content": "no role"}], 0),
        (["fine", 7], 1),
        (["fine", "fine", None], 2),
        ([{"role": "wizard", "content": "x"}], 0),
        ([{"role": "user"}], 0),
        ([{"type": "human", "content": {"not": "content"}}], 0),
        (3.5, 0),
    ],
)
def test_a_malformed_message_is_named_by_its_index(raw: Any, index: int) -> None:
    with pytest.raises(InvalidInputError, match=rf"input\.messages\[{index}\]"):
        parse_messages(raw)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (["x"] * 1001, r"input\.messages has 1001 messages; one request may add 1000"),
        (
            [{"role": "user", "content": [{"type": "text"}] * 1001}],
            r"messages\[0\]\.content has 1001",
        ),
    ],
)
def test_more_than_can_be_read_at_once_is_refused(raw: Any, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        parse_messages(raw)


def test_every_message_gets_an_id_before_the_run_is_stored() -> None:
    values = with_message_ids(
        {"messages": ["a", {"role": "user", "content": "b"}, {"type": "human", "content": "c", "id": "x"}]}
    )

    assert values is not None
    ids = [message["id"] for message in values["messages"]]
    assert len(set(ids)) == 3
    assert ids[2] == "x"
    assert [message.id for message in parse_messages(values["messages"])] == ids


def test_input_without_messages_is_left_alone() -> None:
    assert with_message_ids(None) is None
    assert with_message_ids({"title": "t"}) == {"title": "t"}


@pytest.mark.parametrize(
    "update",
    [{"title": "t", "messages": ["hi"]}, [["title", "t"], ["messages", {"role": "user", "content": "hi"}]]],
)
def test_messages_of_a_command_have_the_same_ids_in_every_attempt(update: Any) -> None:
    command = with_update_ids({"goto": "model", "update": update})

    first, again = (graph_input(RunRequest("t1", command=command)).update for _ in range(2))
    assert dict(first)["messages"][0].id == dict(again)["messages"][0].id is not None
    assert dict(first)["title"] == "t"
    assert with_update_ids(None) is None
    assert with_update_ids({"resume": "yes"}) == {"resume": "yes"}
    assert with_update_ids({"update": "no"}) == {"update": "no"}
    assert graph_input(RunRequest("t1")) is None


def test_a_command_resumes_goes_or_updates() -> None:
    request = RunRequest("t1", command={"resume": {"ok": True}, "update": {"messages": ["hi"]}})

    command = graph_input(request)

    assert isinstance(command, Command)
    assert command.resume == {"ok": True}
    assert command.update == {"messages": [HumanMessage("hi")]}


@pytest.mark.parametrize("command", [{}, {"resume": None}, {"goto": [], "update": {}}, {"goto": ""}])
def test_a_command_that_says_nothing_is_none(command: dict[str, Any]) -> None:
    values = {"messages": [{"role": "user", "content": "hi"}]}

    assert graph_input(RunRequest("t1", command=command)) is None
    assert graph_input(RunRequest("t1", command=command, input=values)) == {"messages": [HumanMessage("hi")]}


@pytest.mark.parametrize(
    ("goto", "targets"),
    [
        ("model", ["model"]),
        (["model", "tools"], ["model", "tools"]),
        ({"node": "model", "input": {"title": "T"}}, [Send("model", {"title": "T"})]),
        (["tools", {"node": "model", "input": {}}], ["tools", Send("model", {})]),
    ],
)
def test_a_command_goes_to_nodes_by_name_or_with_an_input(goto: Any, targets: list[Any]) -> None:
    command = graph_input(RunRequest("t1", command={"goto": goto}))

    assert command.goto == targets
    check_goto(RunRequest("t1", command={"goto": goto}), ["__start__", "model", "tools"])


def test_a_node_that_is_not_there_is_named_with_those_that_are() -> None:
    for goto in ("nowhere", [{"node": "nowhere", "input": {}}]):
        with pytest.raises(InvalidInputError, match=r"nowhere.*only \['model'\]"):
            check_goto(RunRequest("t1", command={"goto": goto}), ["__start__", "model"])


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ({"goto": 7}, "command.goto"),
        ({"goto": {"node": "model"}}, "command.goto"),
        ({"goto": {"node": "model", "input": None}}, "command.goto"),
        ({"goto": [["model"]]}, "command.goto"),
        ({"goto": {"node": "model", "input": {"title": 5}}}, "command.goto.input.title"),
        ({"update": {"title": 5}}, "command.update.title"),
        ({"update": {"colour": "red"}}, "colour"),
        ({"update": "title"}, "command.update"),
        ({"update": [["title"]]}, "command.update"),
        ({"update": {"messages": [{"role": "wizard", "content": "x"}]}}, r"command.update.messages\[0\]"),
    ],
)
def test_a_command_that_does_not_fit_says_where(command: dict[str, Any], wrong: str) -> None:
    with pytest.raises(InvalidInputError, match=wrong):
        graph_input(RunRequest("t1", command=command))


def test_an_update_may_be_a_list_of_pairs() -> None:
    request = RunRequest("t1", command={"update": [["title", "T"], ["messages", "hi"]]})

    assert graph_input(request).update == [("title", "T"), ("messages", [HumanMessage("hi")])]


def test_an_input_leaves_out_what_the_state_does_not_have_and_refuses_what_does_not_fit() -> None:
    assert graph_input(RunRequest("t1", input={"title": "T", "mine": 1})) == {"title": "T"}
    with pytest.raises(InvalidInputError, match=r"input\.title"):
        graph_input(RunRequest("t1", input={"title": 5}))


def test_an_unknown_command_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="launch"):
        graph_input(RunRequest("t1", command={"launch": 1}))


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a b", "ä", "x" * 65, "a\x00", "a\n", "\ud800"])
def test_what_cannot_name_a_thread_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="thread id"):
        check_thread_id(name)
