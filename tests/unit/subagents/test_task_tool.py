"""`task`, from the lead agent's call to its result, over HTTP."""

import asyncio
import hashlib
import threading
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from support.lead import Lead, NewLead
from support.model_server import ScriptedModel, call, calls, silence, status, text, usage

from deerflow.config import Settings, SubagentsSettings
from deerflow.config.agents import CustomSubagent, SubagentOverride
from deerflow.domain import RunOptions
from deerflow.subagents import SubagentResult, SubagentStatus
from deerflow.subagents.delegation import TaskArguments, task_thread
from deerflow.subagents.task_tool import result_message

LS = call("ls", path="/mnt/user-data/workspace")


def task(prompt: str, **more: Any) -> Any:
    return call("task", description=prompt, prompt=prompt, **{"subagent_type": "general-purpose", **more})


def results(messages: list[Any]) -> list[ToolMessage]:
    return [message for message in messages if isinstance(message, ToolMessage)]


async def test_tasks_run_in_parallel_and_their_events_come_as_they_happen(
    lead: Lead, model: ScriptedModel
) -> None:
    gate = threading.Event()
    model.on("part 1", LS.held(gate), text("one found") + usage(30, 4))
    model.on("part 2", text("two found").held(gate))
    model.will_say(calls(task("part 1"), task("part 2")), text("Both done."))
    run = asyncio.create_task(lead.ask("Compare."))
    await model.until(lambda server: server.in_flight == 2)
    gate.set()

    messages = await run

    assert [m.text for m in messages[2:]] == [
        "Task Succeeded. Result: one found",
        "Task Succeeded. Result: two found",
        "Both done.",
    ]
    first = [event for event in lead.events if event["task_id"] == results(messages)[0].tool_call_id]
    assert [event["type"] for event in first] == ["task_started", *["task_running"] * 3, "task_completed"]
    assert {event["model_name"] for event in lead.events} == {"scripted"}
    assert first[0]["description"] == "part 1"
    assert [(e["message"].type, e["message_index"], e["total_messages"]) for e in first[1:4]] == [
        ("ai", 1, 1), ("tool", 2, 2), ("ai", 3, 3)
    ]  # fmt: skip
    assert first[4]["result"] == "one found"
    assert first[4]["usage"]["output_tokens"] > 4


async def test_the_result_carries_what_clients_read(lead: Lead, model: ScriptedModel) -> None:
    model.on("part 1", text("found") + usage(30, 4))
    model.will_say(task("part 1"), text("Done."))

    [result] = results(await lead.ask("Go."))

    assert (result.name, result.status) == ("task", "success")
    assert result.additional_kwargs == {
        "subagent_status": "completed",
        "subagent_result_brief": "found",
        "subagent_result_sha256": hashlib.sha256(b"found").hexdigest(),
        "subagent_model_name": "scripted",
        "subagent_token_usage": {"input_tokens": 30, "output_tokens": 4, "total_tokens": 34},
    }
    assert lead.executor.list("r1")[0].token_usage["total_tokens"] == 34


async def test_a_sub_agent_has_its_own_tools_prompt_and_messages(lead: Lead, model: ScriptedModel) -> None:
    model.on("part 1", text("found"))
    model.will_say(task("part 1", context="It rained."), text("Done."))

    await lead.ask("Go.")

    asked = model.requests[1]
    assert asked.asked == "part 1\n\n<context>\nIt rained.\n</context>"
    assert "You are a sub-agent" in asked.system
    assert {"task", "ask_clarification", "present_files"}.isdisjoint(asked.tools)
    assert {"bash", "ls", "read_file", "write_file", "str_replace", "glob", "grep"} <= set(asked.tools)


async def test_a_sub_agents_tokens_stay_out_of_the_lead_agents_stream(
    lead: Lead, model: ScriptedModel
) -> None:
    model.on("part 1", LS, text("secret words"))
    model.will_say(task("part 1"), text("Done."))
    values = {"messages": [HumanMessage("Go.", id="q")]}

    chunks = [
        (namespace, mode, chunk)
        async for namespace, mode, chunk in lead.agent.astream(
            values, lead.config, context=lead.context, stream_mode=["messages", "updates"], subgraphs=True
        )
    ]

    assert {namespace for namespace, _, _ in chunks} == {()}
    said = [chunk[0].text for _, mode, chunk in chunks if mode == "messages" and chunk[0].type != "tool"]
    assert "".join(said) == "Done."


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ({"agent": "bash", "task": "do it"}, ("do it", "do it", "bash")),
        ({"prompt": "one two three four five six"}, ("one two three four five", None, "general-purpose")),
        ({"description": "d", "prompt": "p", "subagent_type": "x"}, ("d", "p", "x")),
    ],
)
def test_other_spellings_are_read(arguments: dict[str, Any], read: tuple[str, str | None, str]) -> None:
    parsed = TaskArguments.model_validate(arguments)

    assert (parsed.description, parsed.prompt, parsed.subagent_type) == (
        read[0], read[1] or arguments["prompt"], read[2]
    )  # fmt: skip


async def test_wrong_arguments_are_answered_with_what_to_do(lead: Lead, model: ScriptedModel) -> None:
    model.will_say(
        calls(call("task", description="x"), task("p", subagent_type="critic"), task("p", max_turns=0)),
        text("Hm."),
    )

    answers = results(await lead.ask("Go."))

    assert [each.status for each in answers] == ["error"] * 3
    assert "prompt: Field required" in answers[0].text
    assert answers[1].text == "sub-agent 'critic' not found; there are: general-purpose, bash"
    assert "max_turns" in answers[2].text
    assert lead.events == []


async def test_the_shell_sub_agent_is_there_only_with_a_shell(
    model: ScriptedModel, new_lead: NewLead
) -> None:
    lead = new_lead(refusal="no commands here")
    model.on("part 1", text("found"))
    model.will_say(task("part 1", subagent_type="bash"), task("part 1"), text("Done."))

    messages = await lead.ask("Go.")

    assert "there are: general-purpose" in results(messages)[0].text
    assert "bash" not in next(request.tools for request in model.requests if request.asked == "part 1")


async def test_a_custom_type_gets_its_model_its_tools_and_its_prompt(
    model: ScriptedModel, new_lead: NewLead
) -> None:
    custom = CustomSubagent(
        description="Reads.", system_prompt="You only read.", tools=("ls", "read_file", "task"), model="small"
    )
    settings = Settings(subagents=SubagentsSettings(custom_agents={"reader": custom}))
    lead = new_lead(settings=settings)
    model.on("part 1", text("found"))
    model.will_say(task("part 1", subagent_type="reader"), text("Done."))

    await lead.ask("Go.")

    asked = model.requests[1]
    assert "- reader: Reads." in model.requests[0].system
    assert (asked.system.partition("\n\n<data_rule>")[0], asked.tools, asked.body["model"]) == (
        "You only read.",
        ["ls", "read_file"],
        "small",
    )
    assert lead.events[0]["model_name"] == "small"


async def test_a_forbidden_tool_is_refused(lead: Lead, model: ScriptedModel) -> None:
    model.on(
        "part 1", calls(call("task", prompt="deeper"), call("present_files", filepaths=[])), text("could not")
    )
    model.will_say(task("part 1"), text("Done."))

    await lead.ask("Go.")

    refused = [
        e["message"] for e in lead.events if e["type"] == "task_running" and e["message"].type == "tool"
    ]
    assert [(m.name, m.status) for m in refused] == [("task", "error"), ("present_files", "error")]
    assert "not a valid tool" in refused[0].text


async def test_a_loop_stops_at_the_turn_limit_with_what_was_said(lead: Lead, model: ScriptedModel) -> None:
    model.on("part 1", text("Looking.") + LS)
    model.on("part 2", LS)
    model.will_say(calls(task("part 1", max_turns=3), task("part 2", max_turns=2)), text("Done."))

    talker, silent = results(await lead.ask("Go."))

    assert talker.text.startswith(
        "Task Succeeded. Result: (incomplete: stopped at its limit of 3 turns)\nLooking."
    )
    assert talker.additional_kwargs["subagent_stop_reason"] == "turn_capped"
    assert talker.additional_kwargs["subagent_status"] == "completed"
    assert silent.additional_kwargs["subagent_status"] == "completed"  # the listing is what it found
    assert len([request for request in model.requests if request.asked == "part 1"]) == 3
    assert len([request for request in model.requests if request.asked == "part 2"]) == 2


async def test_a_time_out_returns_what_was_found_so_far(model: ScriptedModel, new_lead: NewLead) -> None:
    model.on("part 1", text("The first file says A.") + LS, silence("The second file says B and", after=3))
    for seconds in (1, 10, 40):
        override = SubagentOverride(timeout_seconds=seconds)
        settings = Settings(subagents=SubagentsSettings(agents={"general-purpose": override}))
        lead = new_lead(f"t{seconds}", settings=settings)
        model.will_say(task("part 1"), text("Good enough."))

        messages = await lead.ask("Go.")
        [result] = results(messages)
        if "Found so far" in result.text:  # else the machine is busy, and nothing was found in time
            break

    assert result.text.startswith(
        f"Task timed out: still working after {seconds} seconds.\n\nFound so far:\nThe first file says A."
    )
    assert result.additional_kwargs["subagent_status"] == "timed_out"
    assert lead.events_of("task_timed_out") == [("task_timed_out", result.tool_call_id)]
    assert messages[-1].text == "Good enough."


async def test_a_failing_model_fails_the_task_and_not_the_run(lead: Lead, model: ScriptedModel) -> None:
    model.on("part 1", text("I know a little.") + LS, status(500, message="out of order"))
    model.will_say(task("part 1"), text("I go on alone."))

    messages = await lead.ask("Go.")

    [result] = results(messages)
    assert result.text.startswith("Task failed. Error: ")
    assert "out of order" in result.text
    assert result.text.endswith("Found so far:\nI know a little.")
    assert result.additional_kwargs["subagent_status"] == "failed"
    assert messages[-1].text == "I go on alone."


async def test_cancelling_the_run_stops_every_task_with_its_tool(lead: Lead, model: ScriptedModel) -> None:
    model.on("part", call("bash", command="echo started; sleep 600"))
    model.will_say(calls(task("part 1"), task("part 2"), task("part 3")))
    run = asyncio.create_task(lead.ask("Go."))
    await lead.until("tool_output", count=3)

    run.cancel()
    async with asyncio.timeout(60):
        with pytest.raises(asyncio.CancelledError):
            await run

    assert len(lead.events_of("task_cancelled")) == 3
    assert {each.status for each in lead.executor.list("r1")} == {SubagentStatus.CANCELLED}
    lead.executor.cleanup("r1")
    assert lead.executor.list("r1") == []


async def test_one_task_can_be_cancelled_alone(lead: Lead, model: ScriptedModel) -> None:
    model.on("part 1", text("I saw A.") + call("bash", command="echo started; sleep 600"))
    model.on("part 2", text("found"))
    model.will_say(calls(task("part 1"), task("part 2")), text("Done."))
    run = asyncio.create_task(lead.ask("Go."))
    await lead.until("tool_output")
    await lead.until("task_completed")
    slow = next(each for each in lead.executor.list() if each.status is SubagentStatus.RUNNING)

    assert lead.executor.request_cancel("r1", slow.task_id)
    messages = await run

    stopped, finished = results(messages)
    assert stopped.text == "Task cancelled by user.\n\nFound so far:\nI saw A."
    assert stopped.additional_kwargs["subagent_status"] == "cancelled"
    assert finished.text == "Task Succeeded. Result: found"
    assert messages[-1].text == "Done."
    assert not lead.executor.request_cancel("r1", slow.task_id)
    assert lead.executor.get("r1", slow.task_id).error == "cancelled by user"  # type: ignore[union-attr]


async def test_a_client_may_lower_the_number_of_tasks_of_a_run(
    model: ScriptedModel, new_lead: NewLead
) -> None:
    options = RunOptions(subagent_enabled=True, max_total_subagents=3)
    lead = new_lead(options=options)
    model.on("part", text("found"))
    model.will_say(
        calls(task("part 1"), task("part 2")), calls(task("part 3"), task("part 4")), text("Done.")
    )

    answers = results(await lead.ask("Go."))

    assert [each.status for each in answers] == ["success", "success", "success", "error"]
    assert "may start 3 tasks" in answers[3].text


async def test_only_the_latest_ended_tasks_are_remembered(
    lead: Lead, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deerflow.subagents.executor.MAX_KEPT_RESULTS", 2)
    model.on("part", text("found"))
    model.will_say(task("part 1"), task("part 2"), task("part 3"), text("Done."))

    await lead.ask("Go.")

    assert [each.description for each in lead.executor.list()] == ["part 2", "part 3"]


# After a crash


async def test_after_a_crash_finished_tasks_are_not_run_again_and_others_go_on(
    model: ScriptedModel, new_lead: NewLead, saver: BaseCheckpointSaver[Any]
) -> None:
    lead = new_lead(checkpointer=saver)
    model.on("part 1", text("one"))
    model.on(
        "part 2", call("bash", command="echo x >> runs.txt"), text("two").held(blocker := threading.Event())
    )
    model.will_say(calls(task("part 1"), task("part 2")))
    run = asyncio.create_task(lead.ask("Go."))
    await lead.until("task_completed")
    await model.until(lambda server: server.in_flight == 1 and len(server.requests) == 4)
    run.cancel()  # leaves the checkpoints of a killed process: the second task has no result in them
    with pytest.raises(asyncio.CancelledError):
        await run
    blocker.set()
    model.will_say(text("All done."))

    again = new_lead(checkpointer=saver)
    messages = await again.ask(None)

    assert [m.text for m in results(messages)] == [
        "Task Succeeded. Result: one",
        "Task Succeeded. Result: two",
    ]
    assert messages[-1].text == "All done."
    asked = [request.asked for request in model.requests]
    assert (asked.count("part 1"), asked.count("part 2")) == (1, 3)
    assert (lead.folders.user_data / "runs.txt").read_text() == "x\n"
    assert [e["message_index"] for e in again.events if e["type"] == "task_running"] == [3]


async def test_a_finished_task_whose_result_was_lost_answers_from_its_checkpoint(
    model: ScriptedModel, new_lead: NewLead, saver: BaseCheckpointSaver[Any]
) -> None:
    lead = new_lead(checkpointer=saver)
    model.on("part 1", text("one"))
    model.will_say(task("part 1"), text("Done."))
    await lead.ask("Go.")
    before_tools = next(
        state.config
        for state in [state async for state in lead.agent.aget_state_history(lead.config)]
        if state.next == ("tools",)
    )
    model.will_say(text("Done again."))

    result = await lead.agent.ainvoke(None, before_tools, context=lead.context)

    assert [m.text for m in result["messages"][2:]] == ["Task Succeeded. Result: one", "Done again."]
    assert [request.asked for request in model.requests].count("part 1") == 1


async def test_a_model_that_uses_an_id_twice_gets_two_tasks(
    model: ScriptedModel, new_lead: NewLead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "next_call_id", lambda: "call_0")
    lead = new_lead()
    model.on("part 1", text("one"))
    model.on("part 2", text("two"))
    model.will_say(task("part 1"), text("Done."), task("part 2"), text("Done too."))

    await lead.ask("First.")
    messages = await lead.ask("Second.", run_id="r2")

    assert [m.text for m in results(messages)] == [
        "Task Succeeded. Result: one",
        "Task Succeeded. Result: two",
    ]


def test_a_tasks_thread_is_named_for_its_call() -> None:
    asked = AIMessage("", id="m1", tool_calls=[{"name": "task", "args": {}, "id": "c1"}])

    assert task_thread("t", "c1", [asked]) == task_thread("t", "c1", [HumanMessage("x"), asked])
    assert task_thread("t", "c1", [asked]) != task_thread("t", "c1", [asked.model_copy(update={"id": "m2"})])
    assert task_thread("t", "c1", [asked]).startswith("t/c1-")
    other = AIMessage("", id="m3", tool_calls=[{"name": "task_status", "args": {}, "id": "c1"}])
    assert task_thread("t", "c1", [asked, other]) == task_thread("t", "c1", [asked])


def test_a_long_result_is_short_in_the_fields_and_whole_in_the_message() -> None:
    result = replace(SubagentResult("t", "x"), status=SubagentStatus.COMPLETED, result="y" * 5000)

    message = result_message(result)

    assert len(message.additional_kwargs["subagent_result_brief"]) == 2000
    assert message.text.endswith("y" * 5000)
