"""When a model fails, its fallback answers the same call."""

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from support.model_server import Reply, ScriptedModel, call, cut, malformed, silence, status, text, usage

from deerflow.config import ModelSettings
from deerflow.errors import ConfigError
from deerflow.models import ModelFactory
from deerflow.models.discovery import OFFLINE
from deerflow.models.fallback import FallbackChatModel


def entry(name: str, model: ScriptedModel | None = None, **more: Any) -> ModelSettings:
    given = {
        "name": name,
        "use": "langchain_openai:ChatOpenAI",
        "model": name,
        "api_key": "k",
        "max_retries": 0,
    }
    where = {"base_url": model.base_url} if model else {}
    return ModelSettings.model_validate({**given, **where, **more})


@pytest.fixture(params=["lean", "sdk"])
def common(
    request: pytest.FixtureRequest, model: ScriptedModel, sdk_clients: dict[str, Any]
) -> dict[str, Any]:
    return {"model": model, "transport": request.param, "stream_chunk_timeout": 60, **sdk_clients}


@pytest.fixture
async def factory(common: dict[str, Any]) -> AsyncIterator[ModelFactory]:
    factory = ModelFactory(
        [entry("a", fallbacks=["b", "c"], **common), entry("b", **common), entry("c", **common)], env={}
    )
    yield factory
    await factory.aclose()


def script(model: ScriptedModel, **replies: Reply) -> None:
    """Let each model of the factory say its own reply."""
    for name, reply in replies.items():
        model.on(lambda request, name=name: request.body["model"] == name, reply)


@tool
def look(path: str) -> str:
    """Look at a path."""
    return path


async def test_a_failing_model_is_replaced(model: ScriptedModel, factory: ModelFactory) -> None:
    script(model, a=status(500), b=status(429), c=text("from c") + usage(5, 2))

    answer = await factory.create("a").ainvoke("hi")

    assert answer.text == "from c"
    assert answer.response_metadata["model_name"] == "c"
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["total_tokens"] == 7


async def test_a_model_that_works_is_not_replaced(model: ScriptedModel, factory: ModelFactory) -> None:
    script(model, a=text("from a"), b=text("from b"))

    assert (await factory.create("a").ainvoke("hi")).text == "from a"
    assert [request.body["model"] for request in model.requests] == ["a"]


async def test_a_model_without_fallbacks_stays_itself(factory: ModelFactory) -> None:
    assert not isinstance(factory.create("b"), FallbackChatModel)


async def test_tools_are_bound_to_whoever_answers(model: ScriptedModel, factory: ModelFactory) -> None:
    script(model, a=status(500), b=call("look", path="/"))

    answer = await factory.create("a").bind_tools([look], tool_choice="any").ainvoke("hi")

    assert [(c["name"], c["args"]) for c in answer.tool_calls] == [("look", {"path": "/"})]
    assert [request.tools for request in model.requests] == [["look"], ["look"]]
    assert model.requests[1].body["tool_choice"] == "required"


@pytest.mark.parametrize("reply", [cut("one two three", after=2), malformed("one two", after=1)])
async def test_a_call_that_breaks_after_some_tokens_is_redone(
    model: ScriptedModel, factory: ModelFactory, reply: Reply
) -> None:
    script(model, a=reply, b=text("all of b"))

    answer = await factory.create("a").ainvoke("hi", stream=True)

    assert answer.text == "all of b"


async def test_a_call_that_goes_silent_after_some_tokens_is_redone(
    model: ScriptedModel, common: dict[str, Any]
) -> None:
    script(model, a=silence("one two", after=1), b=text("all of b"))
    hasty = entry("a", fallbacks=["b"], **{**common, "stream_chunk_timeout": 0.3})
    factory = ModelFactory([hasty, entry("b", **common)], env={})

    answer = await factory.create("a").ainvoke("hi", stream=True)

    assert answer.text == "all of b"
    await factory.aclose()


async def test_tokens_are_seen_by_those_who_watch_a_graph(
    model: ScriptedModel, factory: ModelFactory
) -> None:
    script(model, a=cut("lost words here", after=2), b=text("kept words"))
    chat = factory.create("a")

    async def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await chat.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("answer", answer)
    compiled = graph.add_edge(START, "answer").add_edge("answer", END).compile()
    seen, final = [], None
    async for mode, data in compiled.astream(
        {"messages": [HumanMessage("hi")]}, stream_mode=["messages", "values"]
    ):
        if mode == "messages":
            seen.append((data[0].id, data[0].text))
        else:
            final = data["messages"][-1]

    assert "".join(said for _, said in seen) == "lost words kept words"
    assert final is not None
    assert final.text == "kept words"
    assert "".join(said for each, said in seen if each == final.id) == "kept words", "pieces are not mixed"
    assert final.id.startswith(seen[0][0])


async def test_iterating_goes_on_with_the_fallback_before_the_first_token(
    model: ScriptedModel, factory: ModelFactory
) -> None:
    script(model, a=status(503), b=text("from b"))

    parts = [chunk.text async for chunk in factory.create("a").astream("hi")]

    assert "".join(parts) == "from b"


async def test_iterating_raises_after_the_first_token(model: ScriptedModel, factory: ModelFactory) -> None:
    script(model, a=cut("one two", after=1), b=text("never"))

    with pytest.raises(openai.APIConnectionError):
        [chunk async for chunk in factory.create("a").astream("hi")]

    assert [request.body["model"] for request in model.requests] == ["a"]


async def test_when_all_fail_the_first_error_is_raised_and_names_the_others(
    model: ScriptedModel, factory: ModelFactory
) -> None:
    script(model, a=status(429, message="a is busy"), b=status(500, message="b is down"), c=status(401))

    with pytest.raises(openai.RateLimitError, match="a is busy") as caught:
        await factory.create("a").ainvoke("hi")

    assert "its fallback b failed too" in caught.value.__notes__[0]
    assert len(caught.value.__notes__) == 2


async def test_leaving_the_iteration_closes_the_connection(
    model: ScriptedModel, factory: ModelFactory
) -> None:
    script(model, a=status(500), b=text("one two three", delay=60))
    stream = factory.create("a").astream("hi")

    await anext(stream)
    await stream.aclose()

    await model.until(lambda m: m.aborted == 1 and m.in_flight == 0)


def test_synchronous_calls_fall_back_too(model: ScriptedModel, factory: ModelFactory) -> None:
    script(model, a=status(500), b=text("from b"))

    assert factory.create("a").invoke("hi").text == "from b"
    assert "".join(chunk.text for chunk in factory.create("a").stream("hi")) == "from b"


async def test_callbacks_see_one_call(model: ScriptedModel, factory: ModelFactory) -> None:
    script(model, a=status(500), b=text("from b"))
    watcher = Watcher()

    await factory.create("a").ainvoke("hi", config={"callbacks": [watcher]})

    assert watcher.seen == ["start", "end"]


class Watcher(AsyncCallbackHandler):
    def __init__(self) -> None:
        self.seen: list[str] = []

    async def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        self.seen.append("start")

    async def on_llm_end(self, *args: Any, **kwargs: Any) -> None:
        self.seen.append("end")

    async def on_llm_error(self, *args: Any, **kwargs: Any) -> None:
        self.seen.append("error")


def test_fallbacks_of_fallbacks_are_asked_in_order() -> None:
    factory = ModelFactory(
        [entry("a", fallbacks=["b", "c"]), entry("b", fallbacks=["d", "c"]), entry("c"), entry("d")], env={}
    )

    chat = factory.create("a")

    assert isinstance(chat, FallbackChatModel)
    assert chat.names == ("a", "b", "d", "c")


def test_circles_and_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="a -> b -> a form a cycle"):
        ModelFactory([entry("a", fallbacks=["b"]), entry("b", fallbacks=["a"])], env={})
    with pytest.raises(ConfigError, match=r"models\[a\].fallbacks: there is no model 'x'; known: a"):
        ModelFactory([entry("a", fallbacks=["x"])], env={})


def test_a_model_can_reason_if_any_of_its_members_can() -> None:
    models = ModelFactory(
        [
            OFFLINE.model_copy(update={"name": "rules"}),
            OFFLINE.model_copy(update={"name": "rules-twice", "fallbacks": ("rules",)}),
            OFFLINE.model_copy(update={"name": "backed", "fallbacks": ("model",)}),
            entry("model"),
            ModelSettings(name="missing", use="no_such_package:Chat", model="m"),
        ],
        env={},
    )

    answers = {name: models.can_reason(name) for name in models.names}

    expected = {"rules": False, "rules-twice": False, "backed": True, "model": True, "missing": True}
    assert answers == expected
