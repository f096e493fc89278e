"""Whatever a run begins with may set a thread's title too."""

from typing import Any

import pytest
from langgraph.types import Command

from deerflow.runtime.threads import input_with_title


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (None, Command(update={"title": "Mine"})),
        (Command(resume="yes"), Command(resume="yes", update={"title": "Mine"})),
        (Command(goto=["model"]), Command(goto=["model"], update={"title": "Mine"})),
        (Command(update={"goal": "g"}), Command(update={"title": "Mine", "goal": "g"})),
        (Command(update=[("goal", "g")]), Command(update=[("title", "Mine"), ("goal", "g")])),
        ({"messages": []}, {"title": "Mine", "messages": []}),
        ({"title": "Other"}, {"title": "Other"}),
        (Command(update={"title": "Other"}), Command(update={"title": "Other"})),
    ],
)
def test_an_input_gets_the_title_unless_it_sets_one(values: Any, expected: Any) -> None:
    assert input_with_title(values, "Mine") == expected
