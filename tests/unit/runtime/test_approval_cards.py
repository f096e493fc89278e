"""Cards for calls that wait: there are words for every reason, in both languages, here and on the page."""

import time
from pathlib import Path
from typing import get_args

import pytest
from langchain_core.messages import HumanMessage
from langgraph.types import Interrupt

from deerflow.runtime.approval_cards import cards_of
from deerflow.tools.policy import ReasonCode

WORDS = Path(__file__).parents[3] / "web/src/text"
CODES = [code for code in get_args(ReasonCode) if code]


@pytest.mark.parametrize(("language", "said"), [("en", "Work."), ("zh", "开始工作吧。")])
@pytest.mark.parametrize("code", CODES)
def test_every_reason_has_words_in_both_languages(code: str, language: str, said: str) -> None:
    action = {"name": "bash", "args": {"command": "ls"}, "description": "THE FALLBACK"}
    asked = Interrupt(value={"action_requests": [action], "reason_code": code, "rule": 1}, id="a" * 32)

    (card,) = cards_of([asked], [HumanMessage(said)])

    assert "THE FALLBACK" not in card.text
    assert "command: ls" in card.text
    assert f"    {code}: (" in (WORDS / f"{language}.ts").read_text()


def test_a_huge_call_takes_no_time_to_show_and_cannot_be_approved() -> None:
    action = {"name": "write_file", "args": {"content": "\u0430" * 20_000_000}}
    started = time.process_time()

    (card,) = cards_of([Interrupt(value={"action_requests": [action]}, id="a" * 32)], [])

    assert time.process_time() - started < 0.5
    assert [option["id"] for option in card.artifact["human_input"]["options"]] == ["reject"]
