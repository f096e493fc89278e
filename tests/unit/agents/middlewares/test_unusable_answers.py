"""Answers that are empty, cut, or stopped for safety."""

from typing import Any

import pytest
from langchain.agents.middleware import ModelResponse
from langchain_core.messages import AIMessage

from deerflow.agents.middlewares.unusable_answers import (
    CUT_NOTE,
    detect_safety_stop,
    finish_reason,
    is_cut,
    is_empty,
    stopped_for_safety,
)
from deerflow.agents.middlewares.unusable_answers import _with_cut_note as noted


@pytest.mark.parametrize(
    ("message", "empty"),
    [
        (AIMessage(""), True),
        (AIMessage(" \n"), True),
        (AIMessage([{"type": "thinking", "thinking": "hm"}]), True),
        (AIMessage("", additional_kwargs={"reasoning_content": "hm"}), True),
        (AIMessage("yes"), False),
        (AIMessage([{"type": "image", "base64": "x"}]), False),
        (AIMessage("", tool_calls=[{"name": "ls", "args": {}, "id": "1"}]), False),
        (AIMessage("", invalid_tool_calls=[{"name": "ls", "args": "{", "id": "1", "error": None}]), False),
    ],
)
def test_an_answer_is_empty_when_nobody_would_see_anything_of_it(message: AIMessage, empty: bool) -> None:
    assert is_empty(ModelResponse([message])) is empty


@pytest.mark.parametrize(
    ("metadata", "cut", "safety"),
    [
        ({"finish_reason": "stop"}, False, None),
        ({"finish_reason": "length"}, True, None),
        ({"stop_reason": "max_tokens"}, True, None),
        ({"finish_reason": "MAX_TOKENS"}, True, None),
        ({"finish_reason": "content_filter"}, False, "content_filter"),
        ({"stop_reason": "refusal"}, False, "refusal"),
        ({"finish_reason": "SAFETY"}, False, "safety"),
        ({"finish_reason": 7}, False, None),
        ({}, False, None),
    ],
)
def test_every_providers_words_for_an_early_end_are_known(
    metadata: dict[str, Any], cut: bool, safety: str | None
) -> None:
    message = AIMessage("x", response_metadata=metadata)

    assert is_cut(message) is cut
    assert detect_safety_stop(message) == safety
    assert finish_reason(message) == finish_reason(message).lower()


def test_a_cut_answer_says_so_and_keeps_its_words() -> None:
    answer = noted(AIMessage("Once upon", response_metadata={"finish_reason": "length"}))

    assert answer.text == f"Once upon\n\n{CUT_NOTE}"
    assert answer.additional_kwargs["stop_reason"] == "model_length_capped"


def test_the_last_call_of_a_cut_answer_never_runs() -> None:
    calls = [
        {"name": "ls", "args": {"path": "/"}, "id": "1"},
        {"name": "write_file", "args": {"path": "/a", "content": "half of"}, "id": "2"},
    ]
    answer = noted(AIMessage("", tool_calls=calls, response_metadata={"finish_reason": "length"}))

    assert isinstance(answer, AIMessage)
    assert [set(call["args"]) for call in answer.tool_calls] == [{"path"}, {"malformed_arguments"}]


def test_a_safety_stop_drops_calls_and_says_why() -> None:
    calls = [{"name": "bash", "args": {"command": "x"}, "id": "1"}]
    message = AIMessage("I", tool_calls=calls, response_metadata={"finish_reason": "content_filter"})

    stopped = stopped_for_safety(ModelResponse([message]), [detect_safety_stop]).result[0]

    assert isinstance(stopped, AIMessage)
    assert stopped.tool_calls == []
    assert "stopped this answer for safety (content_filter)" in stopped.text


def test_detectors_of_ones_own_decide_instead() -> None:
    response = ModelResponse([AIMessage("no way", response_metadata={"finish_reason": "content_filter"})])

    assert stopped_for_safety(response, [lambda message: None]) is response
    stopped = stopped_for_safety(response, [lambda message: "policy" if "no way" in message.text else None])
    assert "(policy)" in stopped.result[0].text
