"""A task in line: ready as far as it can be, but with no model asked and no time used."""

import asyncio
import threading
from typing import Any

from support.lead import Lead, NewLead
from support.model_server import ScriptedModel, call, calls, text
from support.waiting import until

from deerflow.config import Settings, SubagentsSettings
from deerflow.config.subagents import CustomSubagent
from deerflow.subagents import SubagentExecutor


def task(prompt: str, **more: Any) -> Any:
    return call("task", description=prompt, prompt=prompt, **more)


async def test_a_task_in_line_asks_no_model_and_is_not_said_to_have_started(
    model: ScriptedModel, new_lead: NewLead
) -> None:
    lead = new_lead(executor=SubagentExecutor(max_running=1))
    gate = threading.Event()
    model.on("part 1", text("one found").held(gate))
    model.on("part 2", text("two found"))
    model.will_say(calls(task("part 1"), task("part 2")), text("Done."))
    asking = asyncio.create_task(lead.ask("Go."))
    await lead.until("task_started")
    await asyncio.to_thread(model.wait_for, lambda model: model.in_flight == 1)
    await asyncio.sleep(0.2)  # time enough to begin for one that does not wait

    begun = lead.told("task_started")
    asked = [request.asked for request in model.requests]
    gate.set()
    await asking

    assert len(begun) == 1
    assert asked == ["Go.", "part 1"]
    assert len(lead.told("task_started")) == len(lead.told("task_completed")) == 2
    assert model.most_in_flight == 1


async def test_the_time_of_a_task_begins_with_its_place(model: ScriptedModel, new_lead: NewLead) -> None:
    gate = threading.Event()
    model.on("part 1", text("one found").held(gate))
    model.on("part 2", text("two found"))
    for seconds in (1, 10, 30):
        gate.clear()
        short = CustomSubagent(description="d", system_prompt="p", timeout_seconds=seconds)
        settings = Settings(subagents=SubagentsSettings(custom_agents={"short": short}))
        executor = SubagentExecutor(max_running=1)
        lead = new_lead(f"t{seconds}", settings=settings, executor=executor)
        model.will_say(calls(task("part 1"), task("part 2", subagent_type="short")), text("Done."))
        asking = asyncio.create_task(lead.ask("Go."))
        await lead.until("task_started")

        await asyncio.sleep(seconds + 0.2)
        gate.set()
        await asking
        if len(lead.told("task_completed")) == 2:  # else the machine is busy, and its own time was too short
            break

    assert len(lead.told("task_completed")) == 2


async def in_line(lead: Lead, description: str) -> str:
    """Return the id of a task once it stands in line."""

    def found() -> list[str]:
        return [each.task_id for each in lead.executor.list("r1") if each.description == description]

    return str((await until(found))[0])


async def test_what_a_task_in_line_is_told_reaches_it(model: ScriptedModel, new_lead: NewLead) -> None:
    lead = new_lead(executor=SubagentExecutor(max_running=1))
    gate = threading.Event()
    model.on("part 1", text("one found").held(gate))
    model.on("Look at page 9 too", text("two found on page 9"))
    model.on("part 2", text("two found"))
    model.will_say(calls(task("part 1"), task("part 2")), text("Done."))
    asking = asyncio.create_task(lead.ask("Go."))
    await lead.until("task_started")
    waiting = await in_line(lead, "part 2")
    await asyncio.sleep(0.1)  # it is ready by now, and has seen no message

    assert lead.executor.send("r1", waiting, "Look at page 9 too")
    gate.set()
    await asking

    told = lead.executor.get("r1", waiting)
    assert told is not None
    assert told.result == "two found on page 9"


async def test_a_task_that_is_stopped_in_line_takes_no_place_with_it(
    model: ScriptedModel, new_lead: NewLead
) -> None:
    lead = new_lead(executor=SubagentExecutor(max_running=1))
    gate = threading.Event()
    model.on("part 1", text("one found").held(gate))
    model.on("part", text("found"))
    model.will_say(calls(*(task(f"part {n}") for n in (1, 2, 3))), text("Done."))
    asking = asyncio.create_task(lead.ask("Go."))
    await lead.until("task_started")
    stopped = await in_line(lead, "part 2")
    await asyncio.sleep(0.1)

    assert lead.executor.request_cancel("r1", stopped)
    await lead.until("task_cancelled")
    gate.set()
    await asking

    assert len(lead.told("task_completed")) == 2
    assert "part 2" not in [request.asked for request in model.requests]


async def test_one_that_has_to_ask_again_gets_a_place_again_before_those_that_have_not_begun(
    model: ScriptedModel, new_lead: NewLead
) -> None:
    executor, gate = SubagentExecutor(max_running=1), threading.Event()
    lead = new_lead(executor=executor)
    model.on("part 1", text(""))
    model.on("part 2", text("two found").held(gate))
    model.on("part 3", text("three found"))
    # The second is for the question why the first answer had no words.
    model.will_say(calls(*(task(f"part {n}") for n in (1, 2, 3))), text("one found"), text("Done."))

    asking = asyncio.create_task(lead.ask("Go."))
    await lead.until("task_started", count=2)
    await until(lambda: executor._gate.waiting == 2)  # the third one, and the first one again
    gate.set()
    await asking

    spoken = [" ".join(str(message["content"]) for message in request.messages) for request in model.requests]
    order = [next(n for n in "123" if f"part {n}" in words) for words in spoken[1:-1]]
    assert order == ["1", "2", "1", "3"]
    assert len(lead.told("task_completed")) == 3
    assert model.most_in_flight == 1
