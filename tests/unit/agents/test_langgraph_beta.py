"""What we use of LangGraph's beta parts still does what we rely on."""

from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.types import Command, Overwrite, interrupt

from deerflow.agents.factory import build_agent
from deerflow.agents.langgraph_beta import (
    MODEL_NODE,
    SNAPSHOT_FREQUENCY,
    reduce_messages,
    set_in_place,
    store_ended,
)
from deerflow.agents.state import ThreadState


def human(text: str, name: str | None = None) -> HumanMessage:
    return HumanMessage(text, id=name or text)


HISTORY: list[AnyMessage] = [human("a"), AIMessage("b", id="b"), human("c")]
WRITES = [
    [human("d")],
    [AIMessage("B", id="b")],
    [RemoveMessage(id="a"), human("e")],
    [human("a")],
    [RemoveMessage(id=REMOVE_ALL_MESSAGES), human("f"), human("g")],
    [AIMessage("F", id="f"), RemoveMessage(id="g")],
]


@pytest.mark.parametrize("upto", range(1, len(WRITES) + 1))
def test_messages_reduce_as_the_plain_reducer_does(upto: int) -> None:
    plain: Any = list(HISTORY)
    for write in WRITES[:upto]:
        plain = add_messages(plain, write)

    assert reduce_messages(HISTORY, WRITES[:upto]) == plain


def test_the_result_does_not_depend_on_how_writes_are_batched() -> None:
    whole = reduce_messages(HISTORY, WRITES)

    for cut in range(len(WRITES) + 1):
        assert reduce_messages(reduce_messages(HISTORY, WRITES[:cut]), WRITES[cut:]) == whole


def test_raw_messages_become_messages_and_an_unknown_removal_is_no_error() -> None:
    raw = [{"type": "human", "content": "hi", "id": "1"}, RemoveMessage(id="nobody")]

    assert reduce_messages([], [raw, ("ai", "hello")]) == [human("hi", "1"), AIMessage("hello")]


def test_the_list_given_is_never_changed() -> None:
    before = list(HISTORY)

    reduce_messages(HISTORY, [[RemoveMessage(id="a"), human("d")]])

    assert before == HISTORY


def _talk(saver: InMemorySaver) -> Any:
    """Return a graph that adds one message per turn."""

    async def speak(state: ThreadState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"answer {len(state['messages'])}")]}

    graph = StateGraph(ThreadState)
    graph.add_node("speak", speak)
    graph.add_edge(START, "speak")
    graph.add_edge("speak", END)
    return graph.compile(checkpointer=saver)


async def test_a_long_thread_reads_the_same_from_its_checkpoints_as_it_was_built() -> None:
    saver = InMemorySaver()
    graph = _talk(saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    turns = SNAPSHOT_FREQUENCY + 3
    for number in range(turns):
        result = await graph.ainvoke({"messages": [human(f"question {number}")]}, config)

    state = await graph.aget_state(config)

    assert [m.text for m in state.values["messages"]] == [m.text for m in result["messages"]]
    assert len(state.values["messages"]) == 2 * turns


async def test_every_message_gets_an_id_that_later_reads_repeat() -> None:
    saver = InMemorySaver()
    graph = _talk(saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    result = await graph.ainvoke({"messages": [{"type": "human", "content": "hi"}]}, config)

    first, second = [await graph.aget_state(config) for _ in range(2)]

    ids = [message.id for message in result["messages"]]
    assert all(ids)
    assert [m.id for m in first.values["messages"]] == ids == [m.id for m in second.values["messages"]]


async def test_removing_all_and_overwriting_survive_a_reload() -> None:
    saver = InMemorySaver()
    graph = _talk(saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    await graph.ainvoke({"messages": [human("one")]}, config)

    await graph.aupdate_state(config, {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), human("two")]})
    after_removal = await _talk(saver).aget_state(config)
    await graph.aupdate_state(config, {"messages": Overwrite([human("three")])})
    after_overwrite = await _talk(saver).aget_state(config)

    assert [m.text for m in after_removal.values["messages"]] == ["two"]
    assert [m.text for m in after_overwrite.values["messages"]] == ["three"]


async def test_a_checkpoint_holds_what_was_added_and_not_the_conversation() -> None:
    saver = InMemorySaver()
    graph = _talk(saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    for number in range(20):
        await graph.ainvoke({"messages": [human(f"question {number}")]}, config)

    values = [tuple_.checkpoint["channel_values"] async for tuple_ in saver.alist(config)]

    assert len(values) == 60
    whole = sum("messages" in each for each in values)
    assert whole <= len(values) // SNAPSHOT_FREQUENCY + 1, (
        "the conversation is stored whole only now and then"
    )


@tool
async def look(place: str) -> str:
    """Look at a place."""
    return f"seen: {place}"


class Model(GenericFakeChatModel):
    """Takes tools, and does not use them."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def agent_on(saver: InMemorySaver, *answers: AIMessage) -> Any:
    model = Model(messages=iter(answers))
    return build_agent(model, name="a", system_prompt="", tools=[look], middlewares=(), checkpointer=saver)


async def test_a_conversation_that_ended_without_a_graph_is_one_that_a_graph_has_ended() -> None:
    saver = InMemorySaver()
    config: RunnableConfig = {"configurable": {"thread_id": "t"}, "metadata": {"task_id": "c1"}}

    await store_ended(saver, config, [human("q"), AIMessage("a", id="a")])
    agent = agent_on(saver)
    head = await agent.aget_state(config)

    assert [message.text for message in head.values["messages"]] == ["q", "a"]
    assert (head.next, head.tasks, head.metadata["task_id"]) == ((), (), "c1")
    assert (await agent.ainvoke(None, config))["messages"][-1].text == "a"


async def test_a_graph_goes_on_with_the_tools_of_an_answer_that_it_did_not_give() -> None:
    saver = InMemorySaver()
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    call = {"name": "look", "args": {"place": "here"}, "id": "c1", "type": "tool_call"}
    asked = AIMessage("", id="a", tool_calls=[call])
    agent = agent_on(saver, AIMessage("done", id="d"))

    await agent.aupdate_state(config, {"messages": [human("q"), asked]}, as_node=MODEL_NODE)
    before = await agent.aget_state(config)
    result = await agent.ainvoke(None, config)

    assert before.next == ("tools",)
    assert [message.text for message in result["messages"]] == ["q", "", "seen: here", "done"]


async def test_what_is_set_in_place_takes_no_step_and_leaves_questions_waiting() -> None:
    saver, answers = InMemorySaver(), []
    config: RunnableConfig = {"configurable": {"thread_id": "t1"}}

    async def ask(state: ThreadState) -> dict[str, Any]:
        answers.append(interrupt("may I?"))
        return {"messages": [AIMessage("done")]}

    graph = StateGraph(ThreadState).add_node(ask).add_edge(START, "ask").compile(checkpointer=saver)
    await graph.ainvoke({"messages": [human("go")]}, config)
    before = await graph.aget_state(config)

    await set_in_place(saver, {"configurable": {"thread_id": "t1", "checkpoint_ns": ""}}, {"title": "New"})
    waiting = await graph.aget_state(config)
    ended = await graph.ainvoke(Command(resume="yes"), config)

    assert (waiting.tasks, waiting.config) == (before.tasks, before.config)
    assert waiting.values["title"] == "New"
    assert answers == ["yes"]
    assert (ended["title"], ended["messages"][-1].content) == ("New", "done")
