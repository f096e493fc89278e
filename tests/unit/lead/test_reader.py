"""Reading a thread without its agent gives the agent's own answer, wherever the thread stopped."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import Command, interrupt
from support.lead import Lead, NewLead
from support.model_server import ScriptedModel, call, calls, text

from deerflow.agents import StateReader
from deerflow.lead import LeadAgents

Saver = BaseCheckpointSaver[Any]


@tool
async def approve(what: str) -> str:
    """Ask somebody."""
    return str(interrupt({"ask": what}))


@pytest.fixture
def lead(model: ScriptedModel, new_lead: NewLead, saver: Saver) -> Lead:
    lead = new_lead(checkpointer=saver)
    lead.dependencies = replace(lead.dependencies, extra_tools=[approve])
    lead.agents = LeadAgents(lead.dependencies)
    return lead


async def agrees(lead: Lead) -> Any:
    """Assert that agent and reader see the same state and history; returns the state."""
    reader = StateReader(lead.checkpointer)
    for _ in range(100):  # something of a stopped run may still be on its way to the database
        own, read = await lead.agent.aget_state(lead.config), await reader.state(lead.config)
        history = [state async for state in lead.agent.aget_state_history(lead.config)]
        seen = [state async for state in reader.history(lead.config)]
        if (own, history) == (read, seen):
            break
        await asyncio.sleep(0.1)
    assert read == own
    assert seen == history
    return own


async def test_a_finished_thread(lead: Lead, model: ScriptedModel) -> None:
    model.will_say(call("ls", path="/mnt/user-data/workspace"), text("Empty."), text("Still."))
    await lead.ask("What is there?")
    await lead.ask("And now?")

    state = await agrees(lead)

    assert state.next == ()
    assert [m.type for m in state.values["messages"]] == ["human", "ai", "tool", "ai", "human", "ai"]


async def test_a_thread_that_does_not_exist(lead: Lead) -> None:
    state = await agrees(lead)

    assert (state.values, state.created_at) == ({}, None)


async def test_a_thread_that_was_stopped_in_its_tools(lead: Lead, model: ScriptedModel) -> None:
    model.will_say(
        calls(call("bash", command="echo started; sleep 60"), call("ls", path="/mnt/user-data/outputs"))
    )
    run = asyncio.create_task(lead.ask("Wait."))
    await lead.until("tool_output")
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    state = await agrees(lead)

    assert set(state.next) == {"tools"}
    assert len(state.tasks) in (1, 2)


async def test_a_thread_that_was_stopped_in_its_model(lead: Lead, model: ScriptedModel) -> None:
    model.will_say(text("never said", first=60))
    run = asyncio.create_task(lead.ask("Talk."))
    await model.until(lambda server: server.in_flight == 1)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    state = await agrees(lead)

    assert state.next == ("model",)


async def test_a_thread_that_waits_for_an_answer(lead: Lead, model: ScriptedModel) -> None:
    model.will_say(calls(call("approve", what="this"), call("approve", what="that")), text("Thanks."))
    await lead.ask("Do it.")

    state = await agrees(lead)
    waiting = {each.value["ask"]: each.id for each in state.interrupts}
    assert set(waiting) == {"this", "that"}
    await lead.agent.ainvoke(
        Command(resume={waiting["this"]: "yes", waiting["that"]: "no"}), lead.config, context=lead.context
    )

    state = await agrees(lead)
    assert [m.text for m in state.values["messages"]][2:] == ["yes", "no", "Thanks."]


async def test_a_thread_that_waits_before_its_tools(lead: Lead, model: ScriptedModel) -> None:
    model.will_say(call("ls", path="/mnt/user-data/workspace"))
    values = {"messages": [HumanMessage("Look.", id="q")]}
    await lead.agent.ainvoke(values, lead.config, context=lead.context, interrupt_before=["tools"])

    state = await agrees(lead)

    assert state.next == ("tools",)


async def test_an_edit_is_seen_by_the_agent_and_routes_as_its_node_would(
    lead: Lead, model: ScriptedModel
) -> None:
    model.will_say(text("Hello."))
    await lead.ask("Hi.")
    reader = StateReader(lead.checkpointer)

    await reader.update(lead.config, {"title": "Edited"})
    await reader.update(
        lead.config,
        {"messages": [AIMessage("", tool_calls=[{"name": "ls", "args": {}, "id": "c1"}])]},
        as_node="model",
    )

    state = await agrees(lead)
    assert (state.values["title"], state.next) == ("Edited", ("tools",))
