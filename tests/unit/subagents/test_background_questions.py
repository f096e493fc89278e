"""What a background task asks reaches the person, and nothing that works is stopped for it."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import Command, interrupt
from support.lead import Lead, NewLead
from support.model_server import ScriptedModel, call, calls, text

from deerflow.lead import LeadAgents

LS = call("ls", path="/mnt/user-data/workspace")


@tool
async def pay(amount: int) -> str:
    """Pay, after asking."""
    return f"{amount}: {interrupt({'question': f'Pay {amount}?'})}"


NewAsking = Callable[..., Lead]


@pytest.fixture
def new_asking(new_lead: NewLead) -> NewAsking:
    def new(**parts: Any) -> Lead:
        lead = new_lead(**parts)
        lead.agents = LeadAgents(replace(lead.dependencies, extra_tools=[pay]))
        return lead

    return new


@pytest.fixture
def asking(new_asking: NewAsking) -> Lead:
    return new_asking()


def background(prompt: str) -> Any:
    return call("task", description=prompt, prompt=prompt, background=True)


async def resume(lead: Lead, answer: Any, run_id: str) -> list[AnyMessage]:
    """Answer in another run, as a server does: the run that asked has ended and is forgotten."""
    for known in {each.run_id for each in lead.executor.list()}:
        await lead.executor.finish(known)
    context = replace(lead.context, run_id=run_id)
    ended = await lead.agent.ainvoke(Command(resume=answer), lead.config, context=context)
    return list(ended["messages"])


async def questions(lead: Lead) -> dict[str, str]:
    """Return the ids of the questions that wait, by what they ask."""
    waiting = (await lead.agent.aget_state(lead.config)).interrupts
    return {each.value["question"]: each.id for each in waiting}


async def until_asked(lead: Lead, *, count: int = 1) -> None:
    """Wait until so many tasks ask; the executor tells nobody."""
    async with asyncio.timeout(60):
        while sum(each.question is not None for each in lead.executor.list()) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def task_id(lead: Lead, description: str) -> str:
    """Return the id of a task that has started."""
    return next(str(event["task_id"]) for event in lead.events if event.get("description") == description)


def of_lead(model: ScriptedModel) -> int:
    return sum("task" in request.tools for request in model.requests)


def results(messages: list[AnyMessage], name: str) -> list[str]:
    return [each.text for each in messages if isinstance(each, ToolMessage) and each.name == name]


async def test_a_question_is_asked_when_the_lead_would_end_and_the_answer_lets_the_task_go_on(
    asking: Lead, model: ScriptedModel
) -> None:
    model.on("part 1", call("pay", amount=5), lambda request: text(f"paid {request.last_message}"))
    model.will_say(background("part 1"), text("Waiting."), text("All is paid."))

    paused = await asking.ask("Go.")
    asked = await questions(asking)
    messages = await resume(asking, "yes", "r2")

    assert list(asked) == ["Pay 5?"]
    assert paused[-3].text == "Waiting."
    assert isinstance(paused[-1], AIMessage)
    assert all(len(call["id"] or "") <= 40 for call in paused[-1].tool_calls)  # OpenAI takes no longer ones
    assert "5: yes" in results(messages, "task_question")[0]
    assert messages[-1].text == "All is paid."
    assert of_lead(model) == 3  # the answer before the question was kept: it is not asked for again
    assert await questions(asking) == {}


async def test_a_question_is_marked_with_its_task(asking: Lead, model: ScriptedModel) -> None:
    model.on("part 1", call("pay", amount=5))
    model.will_say(background("part 1"), text("Waiting."))

    await asking.ask("Go.")

    [question] = (await asking.agent.aget_state(asking.config)).interrupts
    assert question.value["task_id"] == asking.events[0]["task_id"]


async def test_a_question_is_asked_between_steps_and_the_lead_continues_with_the_answered_task(
    asking: Lead, model: ScriptedModel
) -> None:
    at_step, at_end = threading.Event(), threading.Event()
    model.on("part 1", call("pay", amount=5), text("paid").held(at_end))
    model.will_say(background("part 1"), LS.held(at_step), text("Waiting."), text("All is paid."))
    run = asyncio.create_task(asking.ask("Go."))
    await until_asked(asking)
    at_step.set()
    await run
    asked = await questions(asking)

    rest = asyncio.create_task(resume(asking, "yes", "r2"))
    await model.until(lambda server: of_lead(server) == 3, timeout=60)  # while the task is still at work
    at_end.set()
    messages = await rest

    assert list(asked) == ["Pay 5?"]
    assert "has answered" in results(messages, "task_question")[0]
    assert "Result: paid" in messages[-2].text
    assert messages[-1].text == "All is paid."


async def test_a_running_task_is_not_stopped_by_the_question_of_another(
    asking: Lead, model: ScriptedModel
) -> None:
    hold = threading.Event()
    model.on("part 1", call("pay", amount=5), text("paid"))
    model.on("part 2", call("bash", command="echo x >> runs.txt"), text("two found").held(hold))
    model.will_say(calls(background("part 1"), background("part 2")), text("Waiting."), text("Done."))
    run = asyncio.create_task(asking.ask("Go."))
    await until_asked(asking)
    is_paused_early = run.done()
    hold.set()

    paused = await run
    messages = await resume(asking, "yes", "r2")

    assert not is_paused_early
    assert asking.events_of("task_cancelled") == []
    assert "two found" in paused[-2].text
    assert (asking.folders.user_data / "runs.txt").read_text() == "x\n"
    assert "paid" in results(messages, "task_question")[0]
    assert messages[-1].text == "Done."


async def test_a_question_of_the_leads_own_tool_waits_for_running_tasks(
    asking: Lead, model: ScriptedModel
) -> None:
    hold = threading.Event()
    model.on("part 1", call("bash", command="echo x >> runs.txt"), text("one found").held(hold))
    model.will_say(background("part 1"), call("pay", amount=7), text("Waiting."), text("Done."))
    run = asyncio.create_task(asking.ask("Go."))
    await model.until(lambda server: of_lead(server) == 2 and server.in_flight == 1, timeout=60)
    hold.set()

    await run
    asked = await questions(asking)
    messages = await resume(asking, "yes", "r2")

    assert list(asked) == ["Pay 7?"]
    assert asking.events_of("task_cancelled") == []
    assert (asking.folders.user_data / "runs.txt").read_text() == "x\n"
    assert results(messages, "pay") == ["7: yes"]
    assert any("one found" in each.text for each in messages)


async def test_two_tasks_ask_at_the_same_time_and_each_gets_its_own_answers(
    asking: Lead, model: ScriptedModel
) -> None:
    for part, amounts in (("part 1", (1, 2)), ("part 2", (3, 4))):
        steps = [call("pay", amount=amount) for amount in amounts]
        model.on(part, *steps, lambda request: text(f"paid {request.messages}"))
    model.will_say(calls(background("part 1"), background("part 2")), text("Waiting."), text("Done."))

    await asking.ask("Go.")
    first = await questions(asking)
    await resume(asking, {first["Pay 3?"]: "three"}, "r2")
    second = await questions(asking)
    await resume(asking, {second["Pay 4?"]: "four", second["Pay 1?"]: "one"}, "r3")
    third = await questions(asking)
    messages = await resume(asking, {third["Pay 2?"]: "two"}, "r4")

    assert [set(each) for each in (first, second, third)] == [
        {"Pay 1?", "Pay 3?"},
        {"Pay 1?", "Pay 4?"},
        {"Pay 2?"},
    ]
    one, two = results(messages, "task_question")
    assert ("1: one" in one, "2: two" in one) == (True, True)
    assert ("3: three" in two, "4: four" in two) == (True, True)
    assert messages[-1].text == "Done."


async def test_the_answer_reaches_the_task_in_another_process(
    model: ScriptedModel, new_asking: NewAsking, saver: BaseCheckpointSaver[Any]
) -> None:
    model.on("part 1", call("pay", amount=5), lambda request: text(f"paid {request.last_message}"))
    model.will_say(background("part 1"), text("Waiting."), text("Done."))
    lead = new_asking(checkpointer=saver)
    await lead.ask("Go.")
    await lead.executor.finish("r1")

    messages = await resume(new_asking(checkpointer=saver), "yes", "r2")

    assert "paid" in results(messages, "task_question")[0]
    assert [request.asked for request in model.requests].count("part 1") == 2


async def test_a_lead_that_waits_for_a_task_learns_that_it_asks_and_the_person_is_asked(
    asking: Lead, model: ScriptedModel
) -> None:
    hold = threading.Event()
    model.on("part 1", call("pay", amount=5), text("paid").held(hold))
    model.on(
        "Go.",
        background("part 1"),
        lambda _: call("task_result", task_id=asking.events[0]["task_id"]),
        text("This step is DeerFlow's."),
        lambda _: call("task_result", task_id=asking.events[0]["task_id"]),
        text("Done."),
    )

    paused = await asking.ask("Go.")
    rest = asyncio.create_task(resume(asking, "yes", "r2"))
    await model.until(lambda server: of_lead(server) == 3, timeout=60)
    hold.set()
    messages = await rest

    assert "running, waits for a person's answer  part 1" in results(paused, "task_result")[0]
    assert results(messages, "task_result")[1] == "Task Succeeded. Result: paid"
    assert messages[-1].text == "Done."


async def test_a_task_that_asks_can_be_cancelled_instead(asking: Lead, model: ScriptedModel) -> None:
    hold, at_step = threading.Event(), threading.Event()
    model.on("part 1", text("I saw A.") + call("pay", amount=5))
    model.on("part 2", text("two found").held(hold))
    model.on(
        "Go.",
        calls(background("part 1"), background("part 2")),
        lambda _: call("task_cancel", task_id=task_id(asking, "part 1")).held(at_step),
        text("Waiting."),
    )
    model.on("two found", text("Done."))
    run = asyncio.create_task(asking.ask("Go."))
    await until_asked(asking)
    at_step.set()
    await asking.until("task_cancelled")
    hold.set()

    messages = await run

    assert results(messages, "task_cancel") == ["Task cancelled by user.\n\nFound so far:\nI saw A."]
    assert await questions(asking) == {}
    assert messages[-1].text == "Done."


async def test_a_call_about_another_question_answers_none(asking: Lead, model: ScriptedModel) -> None:
    model.on("part 1", call("pay", amount=5), text("paid"))
    hold = threading.Event()
    model.on(
        "Go.",
        background("part 1"),
        lambda _: call("task_question", task_id=task_id(asking, "part 1"), number=9).held(hold),
        text("Waiting."),
    )
    model.on("Task Succeeded", text("Done."))
    run = asyncio.create_task(asking.ask("Go."))
    await until_asked(asking)
    hold.set()

    messages = await run
    asked = await questions(asking)

    assert list(asked) == ["Pay 5?"]
    assert not any("paid" in each for each in results(messages, "task_question"))
