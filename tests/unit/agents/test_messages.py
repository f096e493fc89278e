"""A quick answer to what kind a message is of is the same as the slow one."""

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    ToolMessageChunk,
)

from deerflow.agents.messages import is_ai, is_human, is_result


class Spoken(HumanMessage):
    """A kind of somebody's own."""


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage("a"),
        HumanMessageChunk("a"),
        Spoken("a"),
        AIMessage("a"),
        AIMessageChunk("a"),
        ToolMessage("a", tool_call_id="c"),
        ToolMessageChunk("a", tool_call_id="c"),
        SystemMessage("a"),
        RemoveMessage(id="a"),
    ],
)
def test_kinds_are_those_of_the_classes(message: BaseMessage) -> None:
    assert is_human(message) is isinstance(message, HumanMessage)
    assert is_ai(message) is isinstance(message, AIMessage)
    assert is_result(message) is isinstance(message, ToolMessage)
