"""Decisions of people: the three kinds, and answers that are none."""

from typing import Any

import pytest

from deerflow.errors import InvalidInputError
from deerflow.subagents.teams.approval import Decision, decide


@pytest.mark.parametrize(
    "answer", [{"decisions": [{"type": "approve"}]}, {"type": "approve"}, [{"type": "approve"}]]
)
def test_approval_is_read_in_every_form_that_clients_send(answer: Any) -> None:
    assert Decision.of(answer, "x", {"a": 1}).is_approved


def test_an_edit_changes_what_it_names() -> None:
    answer = {"decisions": [{"type": "edit", "edited_action": {"name": "x", "args": {"b": 2}}}]}

    decision = Decision.of(answer, "x", {"a": 1, "b": 1})

    assert (decision.is_approved, decision.is_edited, decision.args) == (True, True, {"a": 1, "b": 2})


def test_a_rejection_keeps_its_reason() -> None:
    decision = Decision.of({"decisions": [{"type": "reject", "message": "too dear"}]}, "x", {})

    assert (decision.is_approved, decision.message) == (False, "too dear")


@pytest.mark.parametrize("answer", [None, "yes", True, 7, [], {}, {"decisions": []}, {"type": "edit"}])
def test_anything_else_is_no_decision(answer: Any) -> None:
    with pytest.raises(InvalidInputError, match="resume with"):
        Decision.of(answer, "x", {})


def test_who_answers_nonsense_is_asked_again_with_what_was_wrong() -> None:
    asked: list[Any] = []
    answers = iter(
        ["yes", {"type": "edit", "edited_action": {"name": "x", "args": {"a": 0}}}, {"type": "approve"}]
    )

    def ask(request: Any) -> Any:
        asked.append(request["action_requests"][0]["description"])
        return next(answers)

    def check(args: Any) -> None:
        raise InvalidInputError("a must be above 0")

    decision = decide(ask, "x", {"a": 1}, "Is it right?", check=check)

    assert decision.is_approved
    assert asked[0] == "Is it right?"
    assert "is no decision" in asked[1]
    assert "a must be above 0" in asked[2]


def test_endless_nonsense_is_a_rejection() -> None:
    decision = decide(lambda request: "maybe", "x", {}, "?")

    assert not decision.is_approved
