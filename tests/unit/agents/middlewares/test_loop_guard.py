"""What counts as going round in circles, and what does not."""

from typing import Any

import pytest
from langchain.agents.middleware import ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from deerflow.agents.middlewares.loop_guard import LoopVerdict, judge, steps_of_turn, without_further_calls
from deerflow.config import LoopDetectionSettings, ToolFrequency

SETTINGS = LoopDetectionSettings()


def step(number: int, *calls: tuple[str, dict[str, Any], str], status: str = "success") -> list[AnyMessage]:
    made = [{"name": name, "args": args, "id": f"c{number}-{i}"} for i, (name, args, _) in enumerate(calls)]
    results = [
        ToolMessage(result, tool_call_id=f"c{number}-{i}", name=name, status=status)
        for i, (name, _, result) in enumerate(calls)
    ]
    return [AIMessage("", tool_calls=made), *results]


def turn(*steps: list[AnyMessage]) -> list[AnyMessage]:
    return [HumanMessage("go"), *(message for one in steps for message in one)]


def same(count: int) -> list[list[AnyMessage]]:
    return [step(n, ("bash", {"command": "make", "description": f"try {n}"}, "failed")) for n in range(count)]


@pytest.mark.parametrize(("count", "action"), [(2, None), (3, "warn"), (4, "warn"), (5, "stop"), (9, "stop")])
def test_the_same_call_with_the_same_result_is_warned_of_then_stopped(count: int, action: str | None) -> None:
    verdict = judge(turn(*same(count)), SETTINGS)

    assert (verdict.action if verdict else None) == action


def test_two_calls_in_turn_are_a_loop_too() -> None:
    steps = [step(n, ("ls", {"path": "/a" if n % 2 else "/b"}, "empty")) for n in range(10)]

    assert judge(turn(*steps), SETTINGS) == LoopVerdict("stop", 5, "ls")


def test_polling_with_changing_results_passes() -> None:
    steps = [step(n, ("bash", {"command": "status"}, f"{n} % done")) for n in range(60)]

    assert judge(turn(*steps), SETTINGS) is None


def test_paging_and_batch_edits_pass() -> None:
    pages = [step(n, ("read_file", {"path": "/a", "start_line": n}, f"page {n}")) for n in range(60)]
    edits = [step(n, ("str_replace", {"path": "/a", "old_str": str(n)}, "Replaced 1")) for n in range(60)]

    assert judge(turn(*pages), SETTINGS) is None
    assert judge(turn(*edits), SETTINGS) is None


def test_a_repeated_look_beside_new_work_passes() -> None:
    steps = [
        step(n, ("ls", {"path": "/a"}, "x"), ("bash", {"command": f"run {n}"}, f"out {n}")) for n in range(9)
    ]

    assert judge(turn(*steps), SETTINGS) is None


def test_ever_new_arguments_with_nothing_new_in_return_are_stopped_in_the_end() -> None:
    steps = [step(n, ("web_search", {"query": f"q{n}"}, "No results.")) for n in range(51)]
    strict = LoopDetectionSettings(tool_freq_overrides={"web_search": ToolFrequency(warn=2, hard_limit=4)})

    assert judge(turn(*steps[:30]), SETTINGS) is None
    assert judge(turn(*steps[:31]), SETTINGS) == LoopVerdict("warn", 30, "web_search")
    assert judge(turn(*steps), SETTINGS) == LoopVerdict("stop", 50, "web_search")
    assert judge(turn(*steps[:5]), strict) == LoopVerdict("stop", 4, "web_search")


def test_a_new_question_starts_anew() -> None:
    messages = [*turn(*same(9)), AIMessage("done"), HumanMessage("again"), *same(10)[9]]

    assert judge(messages, SETTINGS) is None
    assert len(steps_of_turn(messages)) == 1


def test_calls_without_results_and_other_endings_are_nobodys_loop() -> None:
    assert judge([], SETTINGS) is None
    assert judge([HumanMessage("hi")], SETTINGS) is None
    assert judge([*turn(*same(9)), AIMessage("done")], SETTINGS) is None
    assert judge([each for each in turn(*same(99)) if isinstance(each, ToolMessage)], SETTINGS) is None


def test_an_answer_that_calls_again_after_the_stop_becomes_what_was_done() -> None:
    again = AIMessage("Once more.", tool_calls=[{"name": "bash", "args": {}, "id": "x"}])

    response = without_further_calls(ModelResponse([again]), turn(*same(5)), LoopVerdict("stop", 5, "bash"))

    answer = response.result[0]
    assert isinstance(answer, AIMessage)
    assert answer.tool_calls == []
    assert answer.text.startswith("Once more.")
    assert "repeated 5 times" in answer.text
    assert "- bash (5 times): failed" in answer.text
    assert answer.additional_kwargs["stop_reason"] == "loop"


def test_an_answer_in_words_stays_as_it_is() -> None:
    response = ModelResponse([AIMessage("That is all I found.")])

    assert without_further_calls(response, turn(*same(5)), LoopVerdict("stop", 5, "bash")) is response
