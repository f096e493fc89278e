"""An agent's first answer without its graph is the one that the graph would have given."""

from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.types import Command

from deerflow.agents.combine_middlewares import QuickRequest
from deerflow.agents.first_answer import FirstAnswer


class Recording(GenericFakeChatModel):
    """Keeps what it was asked."""

    asked: list[Any]

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.asked.append(messages)
        return super()._generate(messages, *args, **kwargs)


class Note(AgentMiddleware[Any, Any, Any]):
    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        response = await handler(request.override(system_message=SystemMessage("Be short.")))
        return ExtendedModelResponse(model_response=response, command=Command(update={"title": "noted"}))


class Made(AgentMiddleware[Any, Any, Any]):
    async def awrap_model_call(self, request: Any, handler: Any) -> AIMessage:
        return AIMessage("made up")


class Node(AgentMiddleware[Any, Any, Any]):
    async def abefore_model(self, state: Any, runtime: Any) -> None:
        pass


def first_answer(*middlewares: Any, answer: str = "the answer") -> tuple[Recording, FirstAnswer]:
    model = Recording(messages=iter([AIMessage(answer)]), asked=[])
    found = FirstAnswer.of(model, system_prompt="You help.", tools=(), middlewares=middlewares)
    assert found is not None
    return model, found


async def answered(given: FirstAnswer, on_text: Any = lambda text: None) -> dict[str, Any]:
    context: Any = None
    return await given.answer([HumanMessage("q", id="q")], context=context, config={}, on_text=on_text)


async def test_the_answer_comes_through_the_chain_with_its_state_updates() -> None:
    model, given = first_answer(Note())

    written = await answered(given)

    assert [message.text for message in written["messages"]] == ["the answer"]
    assert written["title"] == "noted"
    assert [message.text for message in model.asked[0]] == ["Be short.", "q"]


async def test_text_is_reported_while_it_streams() -> None:
    texts: list[str] = []
    _, given = first_answer(Note(), answer="one two three")

    await answered(given, texts.append)

    assert [word for word in texts if word.strip()] == ["one", "two", "three"]


async def test_a_middleware_may_answer_by_itself() -> None:
    model, given = first_answer(Made())

    written = await answered(given)

    assert written["messages"][0].text == "made up"
    assert model.asked == []


@pytest.mark.parametrize("chain", [(Node(),), (Note(), Node())])
def test_an_agent_with_a_node_of_its_own_needs_its_graph(chain: Any) -> None:
    model = Recording(messages=iter(()), asked=[])

    assert FirstAnswer.of(model, system_prompt="", tools=(), middlewares=chain) is None


def test_a_quick_request_changes_as_the_librarys_does_and_leaves_the_first_as_it_was() -> None:
    model = Recording(messages=iter(()), asked=[])
    first = QuickRequest(model=model, messages=[], system_message=SystemMessage("a"))

    changed = first.override(tools=[{"name": "t"}])
    spelled = changed.override(system_prompt="b")
    without = changed.override(system_prompt=None)

    assert (first.tools, changed.tools) == ([], [{"name": "t"}])
    assert (changed.system_prompt, spelled.system_prompt, without.system_message) == ("a", "b", None)
    assert isinstance(spelled, QuickRequest)
