"""The executor on its own: with and without a running loop, in the background, and its bookkeeping."""

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from support.lead import Lead, NewLead
from support.model_server import ScriptedModel, text

from deerflow.errors import ConflictError, NotFoundError
from deerflow.subagents import SubagentExecutor, SubagentStatus, TaskArguments, TaskSpec


def prepared(lead: Lead, task_id: str = "c1", **values: Any) -> TaskSpec:
    wanted = TaskArguments(description="part", prompt="part 1", **values)
    return lead.dependencies.tasks.create(wanted, task_id=task_id, context=lead.context, messages=())


async def test_a_task_is_awaited(lead: Lead, model: ScriptedModel) -> None:
    model.on("part", text("found"))

    result = await lead.executor.execute(prepared(lead))

    assert (result.status, result.result) == (SubagentStatus.COMPLETED, "found")
    assert result.started_at is not None
    assert result.completed_at is not None
    assert len(result.trace_id) == 8


def test_a_task_runs_without_a_running_loop(model: ScriptedModel, tmp_path: Any) -> None:
    lead = Lead(model, tmp_path, checkpointer=InMemorySaver())
    model.on("part", text("found"))

    result = lead.executor.execute_sync(prepared(lead))

    assert result.result == "found"


async def test_another_thread_waits_for_a_task_on_the_loop(lead: Lead, model: ScriptedModel) -> None:
    model.on("part", text("found"))
    await lead.executor.execute(prepared(lead))

    result = await asyncio.to_thread(lead.executor.execute_sync, prepared(lead, "c2"))

    assert result.result == "found"


async def test_waiting_on_the_tasks_own_loop_is_refused(lead: Lead, model: ScriptedModel) -> None:
    model.on("part", text("found"))
    await lead.executor.execute(prepared(lead))

    with pytest.raises(ConflictError, match="await executor"):
        lead.executor.execute_sync(prepared(lead, "c2"))


async def test_a_sync_call_inside_another_loop_gets_a_thread_of_its_own(
    model: ScriptedModel, new_lead: NewLead
) -> None:
    lead = new_lead(executor=SubagentExecutor(max_running=4))
    model.on("part", text("found"))

    result = lead.executor.execute_sync(prepared(lead))

    assert result.result == "found"


async def test_a_background_task_is_started_listed_and_waited_for(lead: Lead, model: ScriptedModel) -> None:
    hold = threading.Event()
    model.on("part", text("found").held(hold))

    task_id = lead.executor.execute_async(prepared(lead, background=True))
    pending = lead.executor.get("r1", task_id)
    await lead.until("task_started")
    running = lead.executor.background("r1")
    hold.set()
    result = await lead.executor.wait("r1", task_id)

    assert pending is not None
    assert pending.status is SubagentStatus.PENDING
    assert [each.status for each in running] == [SubagentStatus.RUNNING]
    assert result.result == "found"
    assert [each.task_id for each in lead.executor.take_unreported("r1")] == [task_id]
    assert lead.executor.take_unreported("r1") == []
    lead.executor.cleanup("r1")
    assert (lead.executor.list(), lead.executor.started("r1")) == ([], frozenset())


async def test_one_task_is_not_started_twice_at_the_same_time(lead: Lead, model: ScriptedModel) -> None:
    hold = threading.Event()
    model.on("part", text("found").held(hold))
    lead.executor.execute_async(prepared(lead, background=True))

    with pytest.raises(ConflictError, match="already running"):
        await lead.executor.execute(prepared(lead))

    hold.set()
    await lead.executor.wait("r1", "c1")


async def test_waiting_for_an_unknown_task_says_so(lead: Lead) -> None:
    with pytest.raises(NotFoundError, match="task 'nobody' not found"):
        await lead.executor.wait("r1", "nobody")


async def test_a_task_is_cancelled_while_it_waits_for_a_slot(model: ScriptedModel, new_lead: NewLead) -> None:
    lead = new_lead(executor=SubagentExecutor(max_running=1))
    hold = threading.Event()
    model.on("part", text("found").held(hold))
    lead.executor.execute_async(prepared(lead, "c1", background=True))
    lead.executor.execute_async(prepared(lead, "c2", background=True))
    await lead.until("task_started")

    assert lead.executor.request_cancel("r1", "c2")
    result = await lead.executor.wait("r1", "c2")
    hold.set()
    await lead.executor.wait("r1", "c1")

    assert result.status is SubagentStatus.CANCELLED
    assert lead.events_of() == [
        ("task_started", "c1"),
        ("task_cancelled", "c2"),
        ("task_running", "c1"),
        ("task_completed", "c1"),
    ]


async def test_a_background_result_that_was_not_reported_is_kept(
    lead: Lead, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deerflow.subagents.executor.MAX_KEPT_RESULTS", 1)
    model.on("part", text("found"))
    lead.executor.execute_async(prepared(lead, "c1", background=True))
    await lead.executor.wait(lead.context.run_id, "c1")

    for number in range(2, 5):
        await lead.executor.execute(prepared(lead, f"c{number}"))

    assert [each.task_id for each in lead.executor.take_unreported(lead.context.run_id)] == ["c1"]


async def test_an_error_in_a_thread_of_its_own_is_raised(model: ScriptedModel, new_lead: NewLead) -> None:
    lead = new_lead(executor=SubagentExecutor(max_running=4))
    model.on("part", text("found"))

    async def let_go() -> None:
        await lead.dependencies.tasks.builder.models.aclose()
        raise ConflictError("somebody holds on")

    with pytest.raises(ConflictError, match="somebody holds on"):
        lead.executor.execute_sync(replace(prepared(lead), close_models=let_go))
