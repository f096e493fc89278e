"""A failure note is outdated once its question is answered again, and only then."""

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from deerflow.agents.messages import FAILURE, NOTE, outdated_failures


def question(content: str, **marks: object) -> HumanMessage:
    return HumanMessage(content, id="q", additional_kwargs=marks)


def note(message_id: str) -> AIMessage:
    return AIMessage("It failed.", id=message_id, additional_kwargs={NOTE: True, FAILURE: True})


@pytest.mark.parametrize(
    ("messages", "outdated"),
    [
        ([], []),
        ([question("go")], []),
        ([question("go"), note("a")], ["a"]),
        ([question("go"), note("a"), AIMessage("Half", id="h"), note("b")], ["b", "a"]),
        ([question("go"), note("a"), question("else")], []),
        ([question("go"), note("a"), question("go")], ["a"]),
        ([question("no"), note("a"), question("go"), note("b"), question("go"), note("c")], ["c", "b"]),
        ([question("go"), note("a"), question("a hint", **{NOTE: True})], ["a"]),
    ],
)
def test_notes_about_the_last_question_are_outdated(messages: list[AnyMessage], outdated: list[str]) -> None:
    assert outdated_failures(messages) == outdated
