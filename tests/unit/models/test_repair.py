"""Tool calls that a small model writes into its text become real ones, over HTTP as they stream."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from support.model_server import ScriptedModel, call, finished, text

from deerflow.config import ModelSettings
from deerflow.models import ModelFactory
from deerflow.models.repair import REPAIRED

WRITTEN = '```json\n{"function": "look", "arguments": {"path": "/a"}}\n```'


@tool
def look(path: str) -> str:
    """Look at a file."""
    return path


@pytest.fixture
async def make(model: ScriptedModel) -> AsyncIterator[Any]:
    factories = []

    def build(**more: Any) -> Any:
        given = {"use": "langchain_openai:ChatOpenAI", "base_url": model.base_url, "api_key": "k", **more}
        entry = ModelSettings(name="m", model="m", **given)
        factories.append(ModelFactory([entry], env={}))
        return factories[-1].create("m").bind_tools([look])

    yield build
    for factory in factories:
        await factory.aclose()


async def answer(chat: Any, *messages: BaseMessage | str) -> AIMessageChunk:
    chunks = [chunk async for chunk in chat.astream(list(messages) or "hi")]
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert isinstance(whole, AIMessageChunk)
    return whole


@pytest.mark.parametrize("more", [{}, {"transport": "sdk"}, {"repair_tool_calls": "always"}])
async def test_a_written_call_becomes_a_real_one_and_its_text_is_kept(
    model: ScriptedModel, make: Any, more: dict[str, Any]
) -> None:
    model.will_say(text(f"Let me see.\n{WRITTEN}"))

    said = await answer(make(**more))

    assert said.content == "Let me see.\n"
    assert [(each["name"], each["args"]) for each in said.tool_calls] == [("look", {"path": "/a"})]
    assert said.additional_kwargs[REPAIRED] == WRITTEN
    assert said.usage_metadata


async def test_an_answer_in_one_piece_is_repaired_too(model: ScriptedModel, make: Any) -> None:
    model.will_say(text(WRITTEN))

    said = await make().ainvoke("hi")

    assert (said.content, [each["name"] for each in said.tool_calls]) == ("", ["look"])


async def test_it_can_be_switched_off(model: ScriptedModel, make: Any) -> None:
    model.will_say(text(WRITTEN))

    said = await answer(make(repair_tool_calls="never"))

    assert (said.content, said.tool_calls) == (WRITTEN, [])


@pytest.mark.parametrize(
    "question",
    ["Show me JSON", "Give an example, please", "给我一个示例", "How do tool calls look?"],
)
async def test_json_that_was_asked_for_is_shown(model: ScriptedModel, make: Any, question: str) -> None:
    model.on(lambda request: True, text(WRITTEN))

    said = await answer(make(), question)
    forced = await answer(make(repair_tool_calls="always"), question)

    assert (said.content, said.tool_calls) == (WRITTEN, [])
    assert forced.tool_calls


async def test_names_of_files_ask_for_no_json(model: ScriptedModel, make: Any) -> None:
    model.will_say(text(WRITTEN))

    said = await answer(make(), "Compare data.json with http://example.org/x")

    assert said.tool_calls


async def test_a_model_that_makes_real_calls_shows_json_on_purpose(model: ScriptedModel, make: Any) -> None:
    model.on(lambda request: True, text(WRITTEN))
    made = {"name": "look", "args": {"path": "/a"}, "id": "1"}
    past = [HumanMessage("look"), AIMessage("", tool_calls=[made]), ToolMessage("x", tool_call_id="1")]

    said = await answer(make(), *past)
    past[1].additional_kwargs[REPAIRED] = "{}"
    repaired = await answer(make(), *past)

    assert (said.content, said.tool_calls) == (WRITTEN, [])
    assert repaired.tool_calls, "a repaired call was no real one"


async def test_real_calls_and_cut_answers_are_left_alone(model: ScriptedModel, make: Any) -> None:
    model.will_say(text("One {") + call("look", path="/b"), text(WRITTEN[:-6]) + finished("length"))

    real = await answer(make())
    cut = await answer(make())

    assert (real.content, [each["args"] for each in real.tool_calls]) == ("One {", [{"path": "/b"}])
    assert (cut.content, cut.tool_calls) == (WRITTEN[:-6], [])
