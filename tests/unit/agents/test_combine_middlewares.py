"""Folding changes what the library sees, and nothing that a model or a tool sees."""

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.types import Command

from deerflow.agents.combine_middlewares import CombinedMiddleware, combine, combine_model_calls
from deerflow.agents.state import ThreadState


class Wrap(AgentMiddleware[Any, Any, Any]):
    def __init__(self, label: str, log: list[str]) -> None:
        self.label, self.log = label, log

    @property
    def name(self) -> str:
        return self.label


class ModelWrap(Wrap):
    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        self.log.append(f"{self.label} in")
        response = await handler(request)
        self.log.append(f"{self.label} out")
        return response


class ToolWrap(Wrap):
    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        self.log.append(f"{self.label} tool")
        return await handler(request)


class Node(Wrap):
    async def abefore_agent(self, state: Any, runtime: Any) -> None:
        self.log.append(f"{self.label} node")


class Update(Wrap):
    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        response = await handler(request)
        update = {"title": self.label, "artifacts": [self.label]}
        return ExtendedModelResponse(model_response=response, command=Command(update=update))


class AskTwice(Wrap):
    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        await handler(request)
        return await handler(request)


class Plain(Wrap):
    async def awrap_model_call(self, request: Any, handler: Any) -> AIMessage:
        return AIMessage("made up")


@tool
async def echo(words: str) -> str:
    """Echo."""
    return words


async def ask(chain: list[Any], *answers: AIMessage) -> dict[str, Any]:
    model = GenericFakeChatModel(messages=iter(answers))
    agent = create_agent(model, middleware=chain, state_schema=ThreadState)
    return dict(await agent.ainvoke({"messages": [HumanMessage("hi", id="1")]}))


async def test_neighbours_become_one_and_work_in_the_same_order() -> None:
    log: list[str] = []
    chain = [
        ModelWrap("a", log),
        ToolWrap("b", log),
        Node("c", log),
        ModelWrap("d", log),
        ModelWrap("e", log),
    ]

    combined = combine(chain)
    await ask(combined, AIMessage("yes"))

    assert [type(each).__name__ for each in combined] == ["CombinedMiddleware", "Node", "CombinedMiddleware"]
    assert log == ["c node", "a in", "d in", "e in", "e out", "d out", "a out"]
    assert len({each.name for each in combined}) == 3


async def test_only_hooks_that_somebody_has_are_there() -> None:
    log: list[str] = []
    models, tools = (
        combine([ModelWrap("a", log), ModelWrap("b", log)]),
        combine([ToolWrap("a", log), ToolWrap("b", log)]),
    )

    assert type(models[0]).awrap_tool_call is AgentMiddleware.awrap_tool_call
    assert type(tools[0]).awrap_model_call is AgentMiddleware.awrap_model_call
    assert isinstance(models[0], CombinedMiddleware)


async def test_updates_of_all_reach_the_state_the_outer_ones_last() -> None:
    values = await ask(combine([Update("outer", []), Update("inner", [])]), AIMessage("yes"))

    assert (values["title"], values["artifacts"]) == ("outer", ["inner", "outer"])


async def test_updates_of_a_discarded_answer_do_not_count() -> None:
    values = await ask(combine([AskTwice("a", []), Update("inner", [])]), AIMessage("no"), AIMessage("yes"))

    assert values["artifacts"] == ["inner"]
    assert [message.text for message in values["messages"]] == ["hi", "yes"]


async def test_a_bare_message_is_an_answer_too() -> None:
    log: list[str] = []

    values = await ask(combine([ModelWrap("a", log), Plain("b", log)]))

    assert values["messages"][-1].text == "made up"
    assert log == ["a in", "a out"]


async def test_tools_of_all_are_there_and_offered_to_the_model() -> None:
    offered: list[str] = []

    class Offer(Wrap):
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            offered.extend(each.name for each in request.tools)
            return ModelResponse(result=[AIMessage("no model call")])

    with_tools = ModelWrap("a", [])
    with_tools.tools = [echo]

    combined = combine([with_tools, Offer("b", [])])
    await ask(combined)

    assert isinstance(combined[0], CombinedMiddleware)
    assert offered == ["echo"]
    assert combine_model_calls([with_tools]) is None


def test_those_with_sync_hooks_stay_as_they_are() -> None:
    class Sync(Wrap):
        def wrap_model_call(self, request: Any, handler: Any) -> ModelResponse[Any]:
            response: ModelResponse[Any] = handler(request)
            return response

    chain = [ModelWrap("a", []), Sync("b", []), ModelWrap("c", [])]

    assert combine(chain) == chain
