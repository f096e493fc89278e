"""The date: where it stands, and that it never moves."""

from datetime import date

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from deerflow.agents.middlewares.reminder import first_note, new_note, with_reminders

SUNDAY = date(2026, 8, 2)
MONDAY = date(2026, 8, 3)


def said(message_id: str) -> HumanMessage:
    return HumanMessage("hi", id=message_id)


def test_a_day_is_noted_once_and_midnight_adds_a_second_note() -> None:
    first = new_note(said("1"), None, SUNDAY)
    same_day = new_note(said("2"), first, SUNDAY)
    next_day = new_note(said("3"), first, MONDAY)

    assert first == {"1": "Today is Sunday, 2026-08-02."}
    assert same_day == {}
    assert next_day == {"3": "Today is Monday, 2026-08-03."}


def test_notes_stand_in_front_of_their_messages_so_the_prefix_stays() -> None:
    notes = {"1": "sunday", "3": "monday"}
    start: list[AnyMessage] = [said("1"), AIMessage("yes", id="2")]

    before = with_reminders(start, {"1": "sunday"})
    after = with_reminders([*start, said("3")], notes)

    assert after[: len(before)] == before
    assert [message.text for message in after] == [
        "<system-reminder>\nsunday\n</system-reminder>",
        "hi",
        "yes",
        "<system-reminder>\nmonday\n</system-reminder>",
        "hi",
    ]


def test_the_last_note_stays_when_its_message_was_summed_up() -> None:
    seen = with_reminders([said("9")], {"1": "sunday", "3": "monday"})

    assert [message.text for message in seen] == ["<system-reminder>\nmonday\n</system-reminder>", "hi"]


def test_agents_without_a_prepared_turn_get_todays_date() -> None:
    assert first_note([AIMessage("x", id="0"), said("1")], SUNDAY) == {"1": "Today is Sunday, 2026-08-02."}
    assert first_note([], SUNDAY) == {}
    assert first_note([HumanMessage("no id")], SUNDAY) == {}
