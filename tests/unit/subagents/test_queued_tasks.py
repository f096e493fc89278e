"""A queued task calls no model and uses no time."""

import asyncio
import threading
from typing import Any

from support.lead import Lead, NewLead
from support.model_server import ScriptedModel, call, calls, text
from support.waiting import until

from deerflow.config import Settings, SubagentsSettings
from deerflow.config.agents import CustomSubagent
from deerflow.subagents import SubagentExecutor


def task(prompt: str, **more: Any) -> Any:
    return call("task", description=prompt, prompt=prompt, **more)


async def test_a_queued_task_calls_no_model_and_is_not_reported_as_started(
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
    await asyncio.sleep(0.2)  # time enough to start for one that does not wait

    started = lead.events_of("task_started")
    asked = [request.asked for request in model.requests]
    gate.set()
    await asking

    assert len(started) == 1
    assert asked == ["Go.", "part 1"]
    assert len(lead.events_of("task_started")) == len(lead.events_of("task_completed")) == 2
    assert model.most_in_flight == 1


async def test_the_time_limit_of_a_task_begins_with_its_slot(model: ScriptedModel, new_lead: NewLead) -> None:
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
        if len(lead.events_of("task_completed")) == 2:  # else the machine is busy: more time
            break

    assert len(lead.events_of("task_completed")) == 2


async def queued(lead: Lead, description: str) -> str:
    """Return the id of a task once it is queued."""

    def found() -> list[str]:
        return [each.task_id for each in lead.executor.list("r1") if each.description == description]

    return str((await until(found))[0])


async def test_a_message_to_a_queued_task_reaches_it(model: ScriptedModel, new_lead: NewLead) -> None:
    lead = new_lead(executor=SubagentExecutor(max_running=1))
    gate = threading.Event()
    model.on("part 1", text("one found").held(gate))
    model.on("Look at page 9 too", text("two found on page 9"))
    model.on("part 2", text("two found"))
    model.will_say(calls(task("part 1"), task("part 2")), text("Done."))
    asking = asyncio.create_task(lead.ask("Go."))
    await lead.until("task_started")
    waiting = await queued(lead, "part 2")

    assert lead.executor.send("r1", waiting, "Look at page 9 too")
    gate.set()
    await asking

    result = lead.executor.get("r1", waiting)
    assert result is not None
    assert result.result == "two found on page 9"


async def test_a_task_cancelled_while_queued_keeps_no_slot(model: ScriptedModel, new_lead: NewLead) -> None:
    lead = new_lead(executor=SubagentExecutor(max_running=1))
    gate = threading.Event()
    model.on("part 1", text("one found").held(gate))
    model.on("part", text("found"))
    model.will_say(calls(*(task(f"part {n}") for n in (1, 2, 3))), text("Done."))
    asking = asyncio.create_task(lead.ask("Go."))
    await lead.until("task_started")
    cancelled = await queued(lead, "part 2")

    assert lead.executor.request_cancel("r1", cancelled)
    await lead.until("task_cancelled")
    gate.set()
    await asking

    assert len(lead.events_of("task_completed")) == 2
    assert "part 2" not in [request.asked for request in model.requests]
