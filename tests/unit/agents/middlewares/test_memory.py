"""What is handed to the memory of a turn, and how notes carry what is remembered."""

import asyncio
import time
from datetime import date
from types import SimpleNamespace
from typing import Any, cast

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from support.loop_watch import LoopWatch

from deerflow.agents.middlewares.memory import AgentMemory, finished_turn, recall_query, with_memory
from deerflow.agents.middlewares.reminder import new_note, visible_notes, with_reminders
from deerflow.config import MemorySettings, ModelSettings
from deerflow.context import RunContext
from deerflow.domain import RunOptions
from deerflow.memory import Fact, Memory, MemoryService
from deerflow.memory.recall import is_remark, is_small_talk
from deerflow.memory.rendering import Budget, approximate_tokens, block
from deerflow.models import ModelFactory
from deerflow.models.discovery import OFFLINE

TEA, DOG = Fact("1", "Likes tea."), Fact("2", "Has a dog.")
SUNDAY, MONDAY = date(2026, 8, 2), date(2026, 8, 3)
CALL = {"name": "bash", "args": {}, "id": "c1"}


def said(text: str, **more: object) -> HumanMessage:
    return HumanMessage(text, additional_kwargs=more)


def shown(*facts: Fact) -> str:
    return block(Memory(facts=facts), Budget(2000), approximate_tokens)


def test_a_turn_is_the_users_words_since_the_last_answer() -> None:
    messages: list[AnyMessage] = [
        said("old"),
        AIMessage("old answer"),
        said("question"),
        AIMessage("let me see", tool_calls=[CALL]),
        ToolMessage("secret of a page", tool_call_id="c1"),
        said("note of the harness", hide_from_ui=True),
        said("reply to a form", hide_from_ui=True, human_input_response={}),
        HumanMessage("by the harness", name="harness"),
    ]

    turn = finished_turn(messages, [AIMessage([{"type": "text", "text": "the answer"}])])

    assert turn is not None
    assert (turn.said, turn.answer) == (("question", "reply to a form"), "")


def test_an_answer_is_handed_over_unless_it_may_repeat_what_came_from_outside() -> None:
    question = AIMessage("", tool_calls=[{"name": "ask_clarification", "args": {}, "id": "c1"}])
    own: list[AnyMessage] = [
        said("cook"),
        question,
        ToolMessage("Meat?", tool_call_id="c1", name="ask_clarification"),
    ]
    outside: list[AnyMessage] = [
        ToolMessage("a page", tool_call_id="c0", name="web_fetch"),
        AIMessage("So it says."),
    ]
    answer = [AIMessage([{"type": "text", "text": "the answer"}])]

    plain = finished_turn([*own, said("never")], answer)
    after_page = finished_turn([*outside, said("again?")], answer)
    summed_up = finished_turn([said("again?")], answer, has_summary=True)

    assert plain is not None
    assert (plain.said, plain.answer) == (("cook", "never"), "the answer")
    assert after_page is not None
    assert summed_up is not None
    assert (after_page.answer, summed_up.answer) == ("", "")


def test_a_turn_that_goes_on_or_has_no_words_is_not_handed_over() -> None:
    assert finished_turn([said("hi")], [AIMessage("x", tool_calls=[CALL])]) is None
    assert finished_turn([said("hi")], [AIMessage("")]) is None
    assert finished_turn([said("<uploaded_files>a</uploaded_files>")], [AIMessage("Done.")]) is None
    assert finished_turn([said("hi"), AIMessage("Hello.")], [AIMessage("Going on.")]) is None


def test_each_question_gets_what_matters_for_it_in_its_own_note() -> None:
    question = HumanMessage("q", id="m1")
    both = Memory(facts=(TEA, DOG))

    first = with_memory(new_note(question, {}, SUNDAY), {}, both, shown(TEA), "m1")
    same_day = new_note(HumanMessage("q", id="m2"), first, SUNDAY)
    second = with_memory(same_day, first, both, shown(DOG), "m2")
    nothing = with_memory({}, {**first, **second}, both, "", "m3")
    next_day = new_note(HumanMessage("q", id="m4"), {**first, **second}, MONDAY)

    assert first == {"m1": f"Today is Sunday, 2026-08-02.\n\n{shown(TEA)}"}
    assert (same_day, second) == ({}, {"m2": shown(DOG)})
    assert nothing == {}
    assert next_day == {"m4": "Today is Monday, 2026-08-03."}


def test_a_note_loses_what_was_forgotten_where_it_stands() -> None:
    known = {"m1": f"Today is Sunday.\n\n{shown(TEA, DOG)}", "m2": "Today is Monday."}

    less = with_memory({}, known, Memory(facts=(DOG,)), "", "m3")
    nothing = with_memory({}, known, Memory(), "", "m3")

    assert less == {"m1": f"Today is Sunday.\n\n{shown(DOG)}"}
    assert nothing == {"m1": "Today is Sunday."}


def test_a_question_that_says_little_is_understood_with_the_one_before() -> None:
    messages = [said("Where does my sister Nora live?"), AIMessage("In Toronto."), said("And Bruno?")]

    assert recall_query(messages) == "Where does my sister Nora live?\nAnd Bruno?"
    assert recall_query([*messages, said("thanks")]) == "And Bruno?\nthanks"
    assert recall_query([*messages, said("?")]) == "?"
    assert recall_query([said("old"), said("How is rice cooked?")]) == "old\nHow is rice cooked?"
    assert recall_query([said("old"), said("How is brown rice cooked?")]) == "How is brown rice cooked?"


async def test_a_pasted_document_does_not_hold_the_loop() -> None:
    messages = [said("Kite. " + "you do 你我 Kite, " * 200_000)]

    async with LoopWatch(0.2, clock=time.thread_time):
        query = recall_query(messages)
        is_talk = is_small_talk(query) or is_remark(query)
        await asyncio.sleep(0)

    assert query.startswith("Kite.")
    assert not is_talk
    assert len(query) <= 2000


def test_what_only_a_summed_up_message_was_told_may_be_told_again() -> None:
    notes = {"m1": f"Today is Sunday.\n\n{shown(TEA)}", "m2": shown(DOG), "m3": shown(TEA)}

    seen = visible_notes([HumanMessage("q", id="m3")], notes)
    later = visible_notes([HumanMessage("q", id="m9")], notes)

    assert seen == [f"Today is Sunday.\n\n{shown(DOG)}", shown(TEA)]
    assert later == [f"Today is Sunday.\n\n{shown(TEA)}"]


def test_what_is_remembered_outlives_the_message_it_was_noted_for() -> None:
    notes = {"m1": f"Today is Sunday.\n\n{shown(TEA)}", "m2": "Today is Monday."}

    (reminder, _) = with_reminders([HumanMessage("q", id="m9")], notes)

    assert "Today is Monday." in reminder.text
    assert "Likes tea." in reminder.text
    assert "Sunday" not in reminder.text


def memory(**settings: Any) -> AgentMemory:
    models = [
        ModelSettings(name=name, use=use, model=name)
        for name, use in (("big", "langchain_openai:ChatOpenAI"), ("offline", OFFLINE.use))
    ]
    memories = MemoryService(cast("Any", None), cast("Any", None), redact=str)
    return AgentMemory(memories, MemorySettings.model_validate(settings), ModelFactory(models, env={}))


@pytest.mark.parametrize(
    ("wanted", "of_run", "can_ask"),
    [
        (None, None, True),
        (None, "offline", False),
        ("offline", None, False),
        ("big", "offline", True),
        ("nowhere", None, True),
    ],
)
def test_the_settings_or_the_run_name_the_model_that_is_asked(
    wanted: str | None, of_run: str | None, can_ask: bool
) -> None:
    context = cast(
        "RunContext", SimpleNamespace(user_id="u", thread_id="t", options=RunOptions(model_name=of_run))
    )
    turn = finished_turn([said("hi")], [AIMessage("Hello.")])
    assert turn is not None

    conversation = memory(model_name=wanted).conversation(turn, context)

    assert (conversation.ask is not None) is can_ask
