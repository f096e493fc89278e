"""What a sub-agent's tool asks reaches the person, and the answer finds its way back."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import AnyMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import Command, interrupt
from support.lead import Lead, NewLead
from support.model_server import ScriptedModel, call, calls, text

from deerflow.lead import LeadAgents
from deerflow.subagents import SubagentStatus


@tool
async def pay(amounts: list[int]) -> str:
    """Pay, after asking about each amount."""
    answers = [interrupt({"question": f"Pay {amount}?"}) for amount in amounts]
    return f"answers: {answers}"


def asking_lead(new_lead: NewLead, **parts: Any) -> Lead:
    lead = new_lead(**parts)
    lead.agents = LeadAgents(replace(lead.dependencies, extra_tools=[pay]))
    return lead


@pytest.fixture
def asking(new_lead: NewLead) -> Lead:
    return asking_lead(new_lead)


async def resume(lead: Lead, answer: Any, run_id: str) -> dict[str, Any]:
    context = replace(lead.context, run_id=run_id)
    return dict(await lead.agent.ainvoke(Command(resume=answer), lead.config, context=context))


def task_result(messages: list[AnyMessage]) -> str:
    return next(each.text for each in reversed(messages) if isinstance(each, ToolMessage))


async def questions(lead: Lead) -> list[Any]:
    return [each.value for each in (await lead.agent.aget_state(lead.config)).interrupts]


async def test_a_question_reaches_the_run_and_its_answer_the_task(asking: Lead, model: ScriptedModel) -> None:
    model.on("part 1", call("pay", amounts=[5]), lambda r: text(f"paid, {r.last_message}"))
    model.will_say(call("task", description="part 1", prompt="part 1"), text("Done."))

    await asking.ask("Go.")
    [question] = await questions(asking)
    [waiting] = asking.executor.list("r1")
    asking.executor.cleanup("r1")
    done = await resume(asking, "yes", "r2")

    assert question["question"] == "Pay 5?"
    assert question["task_id"] == waiting.task_id
    assert waiting.status is SubagentStatus.RUNNING
    assert waiting.question is not None
    assert "answers: ['yes']" in task_result(done["messages"])
    assert done["messages"][-1].text == "Done."
    assert [request.asked for request in model.requests].count("part 1") == 2


async def test_each_of_several_questions_gets_its_own_answer(asking: Lead, model: ScriptedModel) -> None:
    model.on(
        "part 1", call("pay", amounts=[1, 2]), call("pay", amounts=[3]), lambda r: text(f"paid {r.messages}")
    )
    model.will_say(call("task", description="part 1", prompt="part 1"), text("Done."))

    await asking.ask("Go.")
    asked = [(await questions(asking))[0]["question"]]
    for number, answer in enumerate(["one", "two", "three"]):
        done = await resume(asking, answer, f"r{number + 2}")
        asked += [each["question"] for each in await questions(asking)]

    assert asked == ["Pay 1?", "Pay 2?", "Pay 3?"]
    said = task_result(done["messages"])
    assert "answers: ['one', 'two']" in said
    assert "answers: ['three']" in said


async def test_questions_of_parallel_tools_are_asked_one_after_the_other(
    model: ScriptedModel, new_lead: NewLead, saver: BaseCheckpointSaver[Any]
) -> None:
    three = calls(*(call("pay", amounts=[amount]) for amount in (1, 2, 3)))
    model.on("part 1", three, lambda r: text(f"paid {r.messages}"))
    model.will_say(call("task", description="part 1", prompt="part 1"), text("Done."))

    await asking_lead(new_lead, checkpointer=saver).ask("Go.")
    asked = []
    for number, answer in enumerate(["one", "two", "three"]):
        lead = asking_lead(new_lead, checkpointer=saver)  # each answer meets another process
        asked += [each["question"] for each in await questions(lead)]
        done = await resume(lead, answer, f"r{number + 2}")

    assert asked == ["Pay 1?", "Pay 2?", "Pay 3?"]
    said = task_result(done["messages"])
    assert said.index("answers: ['one']") < said.index("answers: ['two']") < said.index("answers: ['three']")
    assert done["messages"][-1].text == "Done."


async def test_questions_are_told_apart_in_whatever_order_they_come_up(
    model: ScriptedModel, new_lead: NewLead
) -> None:
    is_second_there = asyncio.Event()

    @tool
    async def send(number: int) -> str:
        """Send, after asking; the first one asks last."""
        if number == 2:
            is_second_there.set()
        await is_second_there.wait()
        if number == 1:
            await asyncio.sleep(0)
        return f"{number} is {interrupt({'question': f'Send {number}?'})}"

    lead = new_lead()
    lead.agents = LeadAgents(replace(lead.dependencies, extra_tools=[send]))
    model.on("part 1", calls(call("send", number=1), call("send", number=2)), lambda r: text(f"{r.messages}"))
    model.will_say(call("task", description="part 1", prompt="part 1"), text("Done."))

    await lead.ask("Go.")
    asked = [each["question"] for each in await questions(lead)]
    await resume(lead, "fine", "r2")
    asked += [each["question"] for each in await questions(lead)]
    done = await resume(lead, "bad", "r3")

    assert asked == ["Send 1?", "Send 2?"]
    assert "1 is fine" in task_result(done["messages"])
    assert "2 is bad" in task_result(done["messages"])
