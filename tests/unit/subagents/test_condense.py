"""Long results: summed up piece by piece for the lead agent, kept whole in a file."""

import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from support.lead import Lead, NewLead
from support.model_server import Request, ScriptedModel, call, status, text, usage

from deerflow.config import Settings, SubagentsSettings
from deerflow.subagents.condense import clip_to, condense, estimate_tokens, split_text

LONG = "\n\n".join(f"Finding {number}: " + "some words about it " * 20 for number in range(60))


@pytest.mark.parametrize(("written", "tokens"), [("", 0), ("abcdefgh", 2), ("你好世界", 4), ("ab你cd", 2)])
def test_tokens_are_estimated_by_width(written: str, tokens: int) -> None:
    assert estimate_tokens(written) == tokens


@pytest.mark.parametrize("written", [LONG, "x" * 9000, "你好" * 3000, "a\n" * 5000])
def test_pieces_lose_nothing_and_are_no_larger_than_allowed(written: str) -> None:
    parts = list(split_text(written, 500))

    assert "".join(parts) == written
    assert all(estimate_tokens(part) <= 500 for part in parts)


async def test_a_summary_that_is_still_too_long_is_summarized_again() -> None:
    asked: list[str] = []

    async def ask(prompt: str) -> str:
        asked.append(prompt)
        return prompt[-610:-10]

    short = await condense(LONG, max_tokens=300, ask=ask)

    first_round = len(list(split_text(LONG, 300)))
    assert len(asked) > first_round
    assert estimate_tokens(short) < 330


async def test_a_model_that_does_not_shorten_is_asked_once() -> None:
    asked: list[str] = []

    async def ask(prompt: str) -> str:
        asked.append(prompt)
        return prompt

    short = await condense(LONG, max_tokens=300, ask=ask)

    assert len(asked) == len(list(split_text(LONG, 300)))
    assert "characters left out" in short
    assert estimate_tokens(short) < 330


def test_short_texts_stay_as_they_are() -> None:
    assert clip_to("short", 200) == "short"


def is_summary(request: Request) -> bool:
    return "Sum up the text below" in request.last_message


def lead_with(new_lead: NewLead) -> Any:
    return new_lead(settings=Settings(subagents=SubagentsSettings(max_result_tokens=200)))


async def test_a_long_result_reaches_the_lead_as_a_summary_with_the_whole_in_a_file(
    model: ScriptedModel, new_lead: NewLead
) -> None:
    lead = lead_with(new_lead)
    model.on(is_summary, text("shortened") + usage(50, 5))
    model.on("part 1", text(LONG) + usage(30, 4))
    model.will_say(call("task", description="part 1", prompt="part 1"), text("Done."))

    [result] = [each for each in await lead.ask("Go.") if isinstance(each, ToolMessage)]

    summaries = sum(map(is_summary, model.requests))
    path = result.additional_kwargs["subagent_result_file"]
    assert path.startswith(f"/mnt/user-data/outputs/.task-results/{result.tool_call_id}-")
    assert result.text.startswith("Task Succeeded. Result: shortened")
    assert result.text.endswith(f"the whole text is in {path}]")
    assert result.additional_kwargs["subagent_token_usage"]["total_tokens"] == 34 + 55 * summaries
    assert summaries > 1
    assert whole_of(lead, result).read_text() == LONG.strip()


def whole_of(lead: Lead, result: ToolMessage) -> Path:
    return (
        lead.folders.outputs / ".task-results" / Path(result.additional_kwargs["subagent_result_file"]).name
    )


async def test_a_model_that_uses_an_id_again_overwrites_no_result(
    model: ScriptedModel, new_lead: NewLead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "next_call_id", lambda: "call_0")
    lead = lead_with(new_lead)
    model.on(is_summary, text("shortened"))
    model.on("part 1", text(f"one {LONG}"))
    model.on("part 2", text(f"two {LONG}"))
    for part in ("part 1", "part 2"):
        model.will_say(call("task", description=part, prompt=part), text("Done."))

    await lead.ask("First.")
    messages = await lead.ask("Second.", run_id="r2")

    files = [whole_of(lead, each) for each in messages if isinstance(each, ToolMessage)]
    assert [file.read_text()[:3] for file in files] == ["one", "two"]


async def test_without_a_summary_the_beginning_and_the_end_are_there(
    model: ScriptedModel, new_lead: NewLead
) -> None:
    lead = lead_with(new_lead)
    model.on(is_summary, status(400, message="no"))
    model.on("part 1", text(LONG))
    model.will_say(call("task", description="part 1", prompt="part 1"), text("Done."))

    [result] = [each for each in await lead.ask("Go.") if isinstance(each, ToolMessage)]

    assert "Finding 0:" in result.text
    assert re.search(r"\[\d+ of \d+ characters left out\]", result.text)
    assert "the whole text is in" in result.text
