"""How many, how deep and how dear: queueing, nesting, totals and token budgets."""

import asyncio
import logging
import threading
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from support.lead import Lead, NewLead
from support.model_server import ScriptedModel, call, calls, text, usage

from deerflow.config import Settings, SubagentsSettings
from deerflow.config.agents import CustomSubagent, SubagentOverride
from deerflow.config.models import TokenBudgetSettings
from deerflow.domain import RunOptions
from deerflow.errors import InvalidInputError
from deerflow.subagents import SubagentExecutor, SubagentRegistry, TaskArguments

LS = call("ls", path="/mnt/user-data/workspace")


def task(prompt: str, **more: Any) -> Any:
    return call("task", description=prompt, prompt=prompt, **more)


def results(messages: list[Any]) -> list[ToolMessage]:
    return [message for message in messages if isinstance(message, ToolMessage)]


def settings(**keys: Any) -> Settings:
    return Settings(subagents=SubagentsSettings(**keys))


async def test_where_calls_queue_all_of_them_run_and_never_more_than_the_limit(
    model: ScriptedModel, new_lead: NewLead
) -> None:
    lead = new_lead(settings=settings(overflow="queue", concurrency_range=(1, 4)))
    gate = threading.Event()
    model.on("part", text("found").held(gate))
    model.will_say(calls(*(task(f"part {n}") for n in range(7))), text("Done."))
    run = asyncio.create_task(lead.ask("Go."))
    await model.until(lambda server: server.in_flight == 3)
    gate.set()

    messages = await run

    assert len(results(messages)) == 7
    assert model.most_in_flight == 3


async def test_one_run_and_one_user_keep_to_their_limits(model: ScriptedModel, new_lead: NewLead) -> None:
    limits = settings(max_running_per_run=2, max_running_per_user=3, concurrency_range=(1, 10))
    options = RunOptions(subagent_enabled=True, max_concurrent_subagents=5)
    executor = SubagentExecutor(max_running=64)
    one = new_lead("a", settings=limits, options=options, executor=executor)
    two = new_lead("b", settings=limits, options=options, executor=executor)
    gate = threading.Event()
    model.on("part", text("found").held(gate))
    model.on("Go", calls(*(task(f"part {n}") for n in range(5))), text("Done."))
    runs = asyncio.gather(one.ask("Go."), two.ask("Go.", run_id="r2"))
    await model.until(lambda server: len(server.requests) == 5 and server.in_flight == 3)
    gate.set()

    await runs

    assert model.most_in_flight == 3


# Nesting


def nested(**keys: Any) -> Settings:
    return settings(max_depth=2, **keys)


async def test_a_sub_agent_delegates_once_more_where_the_settings_allow_it(
    model: ScriptedModel, new_lead: NewLead
) -> None:
    lead = new_lead(settings=nested(), executor=SubagentExecutor(max_running=1))
    model.on("inner", text("inner found"))
    model.on("outer", calls(task("inner 1"), task("inner 2")), text("outer found"))
    model.will_say(task("outer"), text("Done."))

    async with asyncio.timeout(60):
        messages = await lead.ask("Go.")

    assert results(messages)[0].text == "Task Succeeded. Result: outer found"
    tools = {request.asked.split()[0]: request.tools for request in model.requests}
    assert "task" in tools["outer"]
    assert "task" not in tools["inner"]
    assert "task_status" not in tools["outer"]
    started = [event for event in lead.events if event["type"] == "task_started"]
    assert [event.get("parent_task_id") for event in started] == [None, *[started[0]["task_id"]] * 2]


async def test_a_sub_agent_that_starts_too_many_is_trimmed_too(
    model: ScriptedModel, new_lead: NewLead, caplog: pytest.LogCaptureFixture
) -> None:
    lead = new_lead(settings=nested())
    model.on("inner", text("inner found"))
    model.on("outer", calls(*(task(f"inner {n}") for n in range(5))), text("outer found"))
    model.will_say(task("outer"), text("Done."))

    with caplog.at_level(logging.WARNING):
        await lead.ask("Go.")

    assert "2 task calls dropped" in caplog.text
    assert len(lead.events_of("task_completed")) == 4


def test_a_configured_deny_list_stays_when_nesting_is_allowed() -> None:
    said = CustomSubagent(description="d", system_prompt="p", disallowed_tools=("task",))
    unsaid = CustomSubagent(description="d", system_prompt="p")

    registry = SubagentRegistry(SubagentsSettings(max_depth=2, custom_agents={"one": said, "two": unsaid}))

    assert "task" in registry.get("one").disallowed_tools
    assert "task" not in registry.get("two").disallowed_tools
    assert "task" not in registry.get("general-purpose").disallowed_tools


async def test_tasks_of_sub_agents_count_towards_the_total_of_the_run(
    model: ScriptedModel, new_lead: NewLead
) -> None:
    lead = new_lead(settings=nested(max_total_per_run=2))
    model.on("inner", text("inner found"))
    model.on("outer", calls(task("inner 1"), task("inner 2")), text("outer found"))
    model.will_say(task("outer"), task("another"), text("Done."))

    messages = await lead.ask("Go.")

    assert len(lead.events_of("task_started")) == 2
    assert "may start 2 tasks and has done so" in results(messages)[1].text


def test_a_budget_for_one_type_takes_precedence_over_that_for_all() -> None:
    few, many = (TokenBudgetSettings(enabled=True, max_tokens=tokens) for tokens in (1000, 9000))

    registry = SubagentRegistry(
        SubagentsSettings(token_budget=many, agents={"bash": SubagentOverride(token_budget=few)})
    )

    assert registry.get("bash").token_budget == few
    assert registry.get("general-purpose").token_budget == many


def test_tasks_of_a_process_that_died_count_towards_the_total_of_the_run(new_lead: NewLead) -> None:
    lead = new_lead(settings=settings(max_total_per_run=2))
    replies = [
        AIMessage("", tool_calls=[{"name": "task", "args": {}, "id": each} for each in ids])
        for ids in (["c1", "c2"], ["c3"])
    ]
    wanted = TaskArguments(description="d", prompt="p")
    messages = [HumanMessage("Go."), *replies]

    again = lead.dependencies.tasks.create(wanted, task_id="c2", context=lead.context, messages=messages)

    assert again.task_id == "c2"
    with pytest.raises(InvalidInputError, match="may start 2 tasks and has done so"):
        lead.dependencies.tasks.create(wanted, task_id="c3", context=lead.context, messages=messages)


async def test_stopping_a_run_stops_tasks_of_tasks(model: ScriptedModel, new_lead: NewLead) -> None:
    lead = new_lead(settings=nested())
    model.on("inner", call("bash", command="echo started; sleep 600"))
    model.on("outer", task("inner"))
    model.will_say(task("outer"))
    run = asyncio.create_task(lead.ask("Go."))
    await lead.until("tool_output")

    run.cancel()
    async with asyncio.timeout(60):
        await asyncio.gather(run, return_exceptions=True)

    assert len(lead.events_of("task_cancelled")) == 2


# Tokens


def budget(**keys: Any) -> Settings:
    return settings(token_budget=TokenBudgetSettings(enabled=True, **keys))


async def test_a_task_is_warned_near_its_token_limit_and_stopped_at_it(
    model: ScriptedModel, new_lead: NewLead
) -> None:
    lead = new_lead(settings=budget(max_tokens=1000))
    model.on(lambda request: "part" in str(request.messages[1:3]), text("I saw A.") + LS + usage(300, 100))
    model.will_say(task("part 1"), text("Done."))

    [result] = results(await lead.ask("Go."))

    assert result.additional_kwargs["subagent_stop_reason"] == "token_capped"
    assert result.text.startswith("Task Succeeded. Result: (incomplete: stopped at its limit of tokens)")
    assert "I saw A." in result.text
    assert result.additional_kwargs["subagent_token_usage"]["total_tokens"] == 1200
    assert (
        model.requests[3].asked == "You have used 80% of your tokens. Finish now: report what you have found."
    )


async def test_an_answer_that_ends_the_work_counts_whatever_it_cost(
    model: ScriptedModel, new_lead: NewLead
) -> None:
    lead = new_lead(settings=budget(max_tokens=1000))
    model.on("part", text("found") + usage(3000, 100))
    model.will_say(task("part 1"), text("Done."))

    [result] = results(await lead.ask("Go."))

    assert result.text == "Task Succeeded. Result: found"


# Traces


async def test_every_log_line_of_a_task_carries_its_trace(
    lead: Lead, model: ScriptedModel, caplog: pytest.LogCaptureFixture
) -> None:
    model.on("part", LS, text("found"))
    model.will_say(task("part 1"), text("Done."))

    with caplog.at_level(logging.DEBUG, logger="deerflow.subagents"):
        await lead.ask("Go.")

    lines = [record for record in caplog.records if record.name.startswith("deerflow.subagents")]
    [result] = lead.executor.list("r1")
    assert lines
    assert {record.__dict__["trace_id"] for record in lines} == {result.trace_id}
    assert len(result.ai_messages) == len({message.id for message in result.ai_messages}) == 2
