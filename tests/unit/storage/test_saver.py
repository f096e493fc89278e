"""Delta channels on our saver: the same state as plain ones, at a fraction of the size."""

import asyncio
import random
import sqlite3
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Overwrite, Send, interrupt

from deerflow.config import DatabaseSettings, Paths
from deerflow.domain import RunRequest, RunStatus
from deerflow.storage import CheckpointSaver, LogBatch, LogEntry, RunEnd, Storage, fence, open_storage
from deerflow.storage.checkpoint_rows import roll_back, rollback_point
from deerflow.storage.sqlite.engine import SqliteEngine

Graph = CompiledStateGraph[Any, Any, Any, Any]


def fold(messages: list[AnyMessage], writes: Sequence[Any]) -> list[AnyMessage]:
    for write in writes:
        messages = add_messages(messages, write)  # type: ignore[assignment,arg-type]
    return messages


class PlainState(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    title: str
    plan: str


class DeltaState(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], DeltaChannel(fold, snapshot_frequency=7)]
    title: str
    plan: str


class WideState(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], DeltaChannel(fold, snapshot_frequency=50)]
    title: str


def answer(state: Any) -> dict[str, Any]:
    last: BaseMessage = state["messages"][-1]
    if last.text == "ask":
        return {"messages": [AIMessage(str(interrupt("really?")), id=f"{last.id}-i")]}
    if last.text == "forget":
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), AIMessage("forgotten", id=f"{last.id}-f")]}
    if last.text == "replace":
        return {"messages": Overwrite([AIMessage("only this", id=f"{last.id}-o")])}
    return {
        "messages": [AIMessage(f"about {last.text}", id=f"{last.id}-a")],
        "title": last.text,
        "plan": "step " * 300,
    }


def spread_out(state: Any) -> list[Send]:
    return [Send("part", {"number": number, "about": state["messages"][-1].id}) for number in range(4)]


async def part(work: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(0.004 * (4 - work["number"]))  # the last one is done first
    return {"messages": [AIMessage(f"part {work['number']}", id=f"{work['about']}-p{work['number']}")]}


def build(state: type, saver: Any) -> Graph:
    graph = StateGraph(state)
    graph.add_node("answer", answer)
    graph.add_node("part", part)
    graph.add_edge(START, "answer")
    graph.add_conditional_edges("answer", spread_out, ["part"])
    graph.add_edge("part", END)
    return graph.compile(checkpointer=saver)


def at(thread: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread}}


def seen(messages: Sequence[BaseMessage]) -> list[tuple[str | None, str]]:
    return [(message.id, message.text) for message in messages]


async def states(graph: Graph, thread: str) -> list[Any]:
    return [
        (
            seen(state.values.get("messages", [])),
            state.values.get("title"),
            state.values.get("plan"),
            state.next,
        )
        async for state in graph.aget_state_history(at(thread))
    ]


async def run_turns(graph: Graph, thread: str) -> None:
    """Do everything a thread goes through: turns, edits, questions, forks."""
    for number, text in enumerate(["a", "b", "c", "forget", "d", "e", "replace", "f"]):
        await graph.ainvoke({"messages": [HumanMessage(text, id=f"h{number}")]}, at(thread))
    await graph.aupdate_state(
        at(thread), {"messages": [RemoveMessage("h7"), HumanMessage("edited", id="h4")]}
    )
    await graph.ainvoke({"messages": [HumanMessage("ask", id="q1")]}, at(thread))
    await graph.ainvoke(Command(resume="yes"), at(thread))
    past = [state async for state in graph.aget_state_history(at(thread))][9]
    await graph.ainvoke({"messages": [HumanMessage("fork", id="k1")]}, past.config)
    for number in range(6):
        await graph.ainvoke({"messages": [HumanMessage(f"more {number}", id=f"n{number}")]}, at(thread))


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Storage]:
    async with open_storage(DatabaseSettings(), Paths(tmp_path)) as storage:
        yield storage


async def test_delta_and_plain_channels_have_the_same_history_on_ours_and_on_langgraphs_saver(
    storage: Storage,
) -> None:
    graphs = [
        (build(PlainState, InMemorySaver()), "t"),
        (build(PlainState, storage.checkpoints), "plain"),
        (build(DeltaState, storage.checkpoints), "delta"),
    ]
    for graph, thread in graphs:
        await run_turns(graph, thread)

    expected, plain, delta = [await states(graph, thread) for graph, thread in graphs]

    assert len(expected) > 30
    assert plain == expected
    assert delta == expected


async def test_a_thread_reads_the_same_after_a_restart(tmp_path: Path) -> None:
    async with open_storage(DatabaseSettings(), Paths(tmp_path)) as storage:
        await run_turns(build(DeltaState, storage.checkpoints), "t1")
        before = await states(build(DeltaState, storage.checkpoints), "t1")

    async with open_storage(DatabaseSettings(), Paths(tmp_path)) as storage:
        assert await states(build(DeltaState, storage.checkpoints), "t1") == before


async def test_a_copy_has_the_whole_history_and_is_independent(storage: Storage) -> None:
    graph = build(DeltaState, storage.checkpoints)
    await run_turns(graph, "t1")
    before = await states(graph, "t1")

    await storage.checkpoints.acopy_thread("t1", "t2")
    await graph.ainvoke({"messages": [HumanMessage("only here", id="x")]}, at("t2"))
    await storage.threads.create("t1", "default", {})
    await storage.threads.delete("t1")

    assert (await states(graph, "t2"))[-len(before) :] == before
    assert await states(graph, "t1") == []


async def test_pruning_keeps_what_the_newest_state_is_rebuilt_from(storage: Storage, tmp_path: Path) -> None:
    graph = build(DeltaState, storage.checkpoints)
    await run_turns(graph, "t1")
    before = (await states(graph, "t1"))[0]

    await storage.checkpoints.aprune(["t1"])
    pruned = await states(graph, "t1")
    await graph.ainvoke({"messages": [HumanMessage("on", id="on")]}, at("t1"))

    assert pruned[0] == before
    assert len(pruned) < 25
    assert (await states(graph, "t1"))[0][0][: len(before[0])] == before[0]


async def test_a_plain_thread_becomes_a_delta_thread(storage: Storage) -> None:
    plain = build(PlainState, storage.checkpoints)
    for number in range(3):
        await plain.ainvoke({"messages": [HumanMessage(f"old {number}", id=f"o{number}")]}, at("t1"))
    before = (await plain.aget_state(at("t1"))).values["messages"]
    delta = build(DeltaState, storage.checkpoints)

    await delta.ainvoke({"messages": [HumanMessage("new", id="n")]}, at("t1"))

    after = (await delta.aget_state(at("t1"))).values["messages"]
    assert seen(after)[: len(before)] == seen(before)
    assert len(after) == len(before) + 6


async def test_forty_concurrent_threads_are_independent(storage: Storage) -> None:
    graph = build(DeltaState, storage.checkpoints)

    async def converse(name: str) -> None:
        for number in range(2):
            await graph.ainvoke({"messages": [HumanMessage(name, id=f"{name}-{number}")]}, at(name))

    await asyncio.gather(*(converse(f"t{number}") for number in range(40)))

    for number in range(40):
        messages = (await graph.aget_state(at(f"t{number}"))).values["messages"]
        assert [message.text for message in messages if isinstance(message, HumanMessage)] == [
            f"t{number}"
        ] * 2


async def test_a_thread_continues_after_a_turn_of_a_faster_clock(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, ahead = build(DeltaState, storage.checkpoints), time.time_ns() + 3600 * 10**9
    monkeypatch.setattr("langgraph.checkpoint.base.id._last_v6_timestamp", None)
    with monkeypatch.context() as there:
        there.setattr(time, "time_ns", lambda: ahead)
        await graph.ainvoke({"messages": [HumanMessage("one", id="1")]}, at("t1"))
    old = await graph.aget_state(at("t1"))

    monkeypatch.setattr("langgraph.checkpoint.base.id._last_v6_timestamp", None)  # another process
    await graph.ainvoke({"messages": [HumanMessage("two", id="2")]}, at("t1"))
    on = (await graph.aget_state(at("t1"))).values["messages"]
    monkeypatch.setattr("langgraph.checkpoint.base.id._last_v6_timestamp", None)
    await graph.ainvoke({"messages": [HumanMessage("three", id="3")]}, old.config)
    again = (await graph.aget_state(at("t1"))).values["messages"]

    assert [message.text for message in on if isinstance(message, HumanMessage)] == ["one", "two"]
    assert [message.text for message in again if isinstance(message, HumanMessage)] == ["one", "three"]


async def test_a_graph_of_a_stale_attempt_cannot_continue(storage: Storage) -> None:
    graph = build(DeltaState, storage.checkpoints)
    await storage.runs.create("r1", RunRequest("t1"), owner="me")
    config: RunnableConfig = {"configurable": {"thread_id": "t1", **fence("r1", 1)}}
    await graph.ainvoke({"messages": [HumanMessage("mine", id="h0")]}, config)
    before = await states(graph, "t1")

    await storage.runs.claim("r1", owner="you", attempt=1)

    with pytest.raises(Exception, match="may write no more"):
        await graph.ainvoke({"messages": [HumanMessage("late", id="h1")]}, config, durability="sync")
    assert await states(graph, "t1") == before


@pytest.mark.parametrize("question", ["b", "ask", "forget", "replace"])
async def test_a_rollback_leaves_the_tables_as_they_were(tmp_path: Path, question: str) -> None:
    engine = await SqliteEngine.open(tmp_path / "deerflow.db")
    graph = build(DeltaState, CheckpointSaver(engine))
    await run_turns(graph, "t1")
    await graph.ainvoke({"messages": [HumanMessage("sub", id="s0")]}, at("t1/call-1"))
    await graph.ainvoke({"messages": [HumanMessage("ask", id="open")]}, at("t1"))
    past = [state async for state in graph.aget_state_history(at("t1"))][12]
    point = await engine.read(lambda db: rollback_point(db, "t1"))
    before = await engine.read(tables)

    await graph.ainvoke(Command(resume="answer"), at("t1"))
    await graph.ainvoke({"messages": [HumanMessage(question, id="h99")]}, at("t1"))
    await graph.ainvoke({"messages": [HumanMessage("fork", id="h98")]}, past.config)
    await graph.ainvoke({"messages": [HumanMessage("sub", id="s1")]}, at("t1/call-1"))
    await graph.ainvoke({"messages": [HumanMessage("sub", id="s2")]}, at("t1/call-2"))
    await engine.write(lambda db: roll_back(db, "t1", point))

    assert await engine.read(tables) == before
    await engine.aclose()


def tables(db: sqlite3.Connection) -> list[list[Any]]:
    names = ("chains", "checkpoints", "writes", "blobs")
    return [db.execute(f"SELECT * FROM {name} ORDER BY key").fetchall() for name in names]


async def run_conversation(storage: Storage, *, turns: int, tokens: int) -> Graph:
    """Store a conversation as the runtime does: run row, checkpoints, event log, end."""
    chance = random.Random(5)

    async def model(state: Any) -> dict[str, Any]:
        words = " ".join(chance.choice(("deer", "river", "forest", "plan", "walks")) for _ in range(tokens))
        usage = {"input_tokens": 50, "output_tokens": tokens, "total_tokens": 50 + tokens}
        about = {"finish_reason": "stop", "model_name": "scripted", "model_provider": "openai"}
        message = AIMessage(words, id=f"lc_run--{uuid.uuid4()}", response_metadata=about)
        return {"messages": [message.model_copy(update={"usage_metadata": usage})]}

    graph = StateGraph(WideState)
    graph.add_node("before_agent", lambda state: {"title": "A walk in the forest"})
    graph.add_node("model", model)
    graph.add_edge(START, "before_agent")
    graph.add_edge("before_agent", "model")
    compiled: Graph = graph.compile(checkpointer=storage.checkpoints)
    for turn in range(turns):
        run = str(uuid.uuid4())
        question = {"type": "human", "content": "And then?", "id": str(uuid.uuid4())}
        await storage.runs.create(
            run, RunRequest("t1", input={"messages": [question]}), owner="machine-1-abcdef"
        )
        config: RunnableConfig = {
            "configurable": {"thread_id": "t1", **fence(run, 1)},
            "metadata": {"run_id": run},
        }
        result = await compiled.ainvoke({"messages": [HumanMessage("And then?", id=question["id"])]}, config)
        piece = b'{"content":"%s","type":"ai","id":"%s"}' % (
            result["messages"][-1].text.encode(),
            run.encode(),
        )
        chunks = [
            LogEntry(
                seq,
                seq,
                "messages",
                b'[{"content":"deer ","type":"AIMessageChunk","id":"lc_run--%s"},{}]' % run.encode(),
            )
            for seq in range(tokens)
        ]
        await storage.events.append(LogBatch(run, "t1", 1, chunks, [(turn, piece)]))
        values = LogEntry(tokens, 0, "values", b'{"messages":[\x010-%d\x01]}' % turn)
        await storage.runs.settle(
            run, attempt=1, end=RunEnd(RunStatus.SUCCESS), last=LogBatch(run, "t1", 1, [values])
        )
    return compiled


async def test_100_turns_of_10_tokens_cost_less_than_8_kb_each(storage: Storage, tmp_path: Path) -> None:
    graph = await run_conversation(storage, turns=100, tokens=10)

    sizes = {path.name: path.stat().st_size for path in Paths(tmp_path).data.glob("deerflow.db*")}
    per_turn = (sizes["deerflow.db"] + sizes["deerflow.db-wal"]) / 100 / 1024
    print(f"{per_turn:.1f} KB a turn, database and log: {sizes}")
    assert per_turn < 8
    assert len((await graph.aget_state(at("t1"))).values["messages"]) == 200


async def test_a_history_has_only_the_writes_since_the_last_snapshot(tmp_path: Path) -> None:
    engine = await SqliteEngine.open(tmp_path / "deerflow.db")
    graph = build(DeltaState, CheckpointSaver(engine))
    for number in range(40):
        await graph.ainvoke({"messages": [HumanMessage(f"{number}", id=f"h{number}")]}, at("t1"))
    head = await graph.checkpointer.aget_tuple(at("t1"))  # type: ignore[union-attr]
    assert head is not None

    history = await graph.checkpointer.aget_delta_channel_history(config=head.config, channels=["messages"])  # type: ignore[union-attr]

    assert "seed" in history["messages"]
    assert len(history["messages"]["writes"]) <= 7 * 4
    await engine.aclose()
