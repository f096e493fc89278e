"""`ask_clarification`: the question's wire form, its limits, and the end of the turn."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.sandboxes import run_context
from support.tool_calls import answer_of, run_calls, tool_call

from deerflow.tools.clarify import FALLBACK_QUESTION, ask_clarification_tool


async def ask(tmp_path: Path, **args: Any) -> tuple[str, dict[str, Any]]:
    answer = await answer_of(ask_clarification_tool, run_context(tmp_path), **args)
    assert answer.status == "success"
    return answer.text, answer.artifact["human_input"]


async def test_a_plain_question(tmp_path: Path) -> None:
    text, request = await ask(
        tmp_path, question="Which year?", clarification_type="missing_info", context="Figures differ."
    )

    assert text == "Figures differ.\n\nWhich year?"
    assert request == {
        "version": 1,
        "kind": "human_input_request",
        "source": "ask_clarification",
        "request_id": "clarification:call-1",
        "tool_call_id": "call-1",
        "clarification_type": "missing_info",
        "question": "Which year?",
        "context": "Figures differ.",
        "input_mode": "free_text",
    }


@pytest.mark.parametrize(
    "options",
    [
        ["Red", "Blue"],
        '["Red", "Blue"]',
        "Red\nBlue",
        [{"label": "Red"}, {"value": "Blue"}],
        ["Red", " Blue", "", None],
    ],
)
async def test_options_in_whatever_form_become_choices(tmp_path: Path, options: Any) -> None:
    text, request = await ask(
        tmp_path, question="Colour?", clarification_type="approach_choice", options=options
    )

    assert text == "Colour?\n\n1. Red\n2. Blue"
    assert request["input_mode"] == "choice_with_other"
    assert request["options"] == [
        {"id": "option-1", "label": "Red", "value": "Red"},
        {"id": "option-2", "label": "Blue", "value": "Blue"},
    ]


async def test_fields_become_a_form(tmp_path: Path) -> None:
    fields = [
        {"name": "when", "label": "When?", "type": "date", "required": True, "placeholder": "2026-01-31"},
        {"name": "size", "type": "select", "options": ["S", "M"]},
        {"name": "odd", "type": "hologram"},
        {"name": "empty", "type": "select"},
        {"name": "when", "label": "twice"},
        "nonsense",
    ]

    text, request = await ask(
        tmp_path, question="Details?", clarification_type="missing_info", fields=fields, options=["unused"]
    )

    assert (request["version"], request["input_mode"]) == (2, "form")
    assert "options" not in request
    assert request["fields"] == [
        {"name": "when", "label": "When?", "type": "date", "required": True, "placeholder": "2026-01-31"},
        {"name": "size", "label": "size", "type": "select", "required": False, "options": ["S", "M"]},
        {"name": "odd", "label": "odd", "type": "text", "required": False},
        {"name": "empty", "label": "empty", "type": "text", "required": False},
    ]
    assert text == "Details?\n\n- When?\n- size (S, M) (optional)\n- odd (optional)\n- empty (optional)"


async def test_what_is_missing_or_unknown_still_ends_in_a_question(tmp_path: Path) -> None:
    _, nothing = await ask(tmp_path)
    _, unknown = await ask(
        tmp_path, question=7, clarification_type="mood", context="Why?", options=5, fields="{"
    )

    assert (nothing["question"], nothing["clarification_type"]) == (FALLBACK_QUESTION, "missing_info")
    assert (unknown["question"], unknown["input_mode"]) == ("Why?", "free_text")


async def test_the_limits_hold_and_something_is_always_asked(tmp_path: Path) -> None:
    field = {"name": "n", "type": "select", "options": ["鹿" * 500 + str(number) for number in range(40)]}
    fields = [{**field, "name": f"f{number}"} for number in range(30)]

    _, choice = await ask(tmp_path, question="q", options=[f"{number}" * 300 for number in range(50)])
    _, form = await ask(tmp_path, question="鹿" * 90_000, context="流" * 90_000, fields=fields)

    assert len(choice["options"]) == 24
    assert max(len(option["label"]) for option in choice["options"]) == 200
    assert 0 < len(form["fields"]) <= 16
    assert len(json.dumps(form, ensure_ascii=False).encode()) <= 16 * 1024


async def test_the_turn_ends_with_the_question(tmp_path: Path) -> None:
    state, model = await run_calls(
        [ask_clarification_tool], run_context(tmp_path), tool_call("ask_clarification", question="Why?")
    )

    assert len(model.seen) == 1
    assert state["messages"][-1].name == "ask_clarification"
