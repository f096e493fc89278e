"""What a user explicitly asks to remember is found without a model."""

import pytest

from deerflow.memory.extraction import explicit_requests
from deerflow.observability.logs import Redactor

from .conftest import NOW, NewTalk


@pytest.mark.parametrize(
    ("said", "wish"),
    [
        ("Please remember that my dog is called Rex.", "my dog is called Rex"),
        ("Hi. Remember: I live in Oslo!", "I live in Oslo"),
        ("keep in mind that I am vegan", "I am vegan"),
        ("Merke dir, dass ich Tee mag.", "ich Tee mag"),
        ("请记住：我住在上海。", "我住在上海"),
    ],
)
def test_wishes_are_learnt(conversation: NewTalk, said: str, wish: str) -> None:
    update = explicit_requests(conversation(said), now=NOW, redact=Redactor())

    assert [fact.content for fact in update.new] == [wish]


@pytest.mark.parametrize(
    "said",
    [
        "Do you remember that day?",
        "I remember that well.",
        "Remember that day?",
        "Remember the milk.",
        "Please remember that my password: hunter2hunter2",
        "Remember that it is in /mnt/user-data/uploads/a.txt",
    ],
)
def test_other_words_are_not(conversation: NewTalk, said: str) -> None:
    assert explicit_requests(conversation(said), now=NOW, redact=Redactor()).is_empty
