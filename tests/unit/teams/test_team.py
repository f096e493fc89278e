"""Teams at work: through the lead agent, with a scripted model behind every member."""

import asyncio
import json
import threading
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import AnyMessage, ToolMessage
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from support.lead import Lead, NewLead, scripted_models
from support.model_server import Request, ScriptedModel, call, text

from deerflow.config import Settings
from deerflow.domain import RunOptions
from deerflow.errors import InvalidInputError
from deerflow.subagents.teams.team import TeamDecision, decide

GOAL = "Shall we buy Acme?"


def step(name: str, role: str, *needs: str) -> dict[str, Any]:
    return {"id": name, "role": role, "task": f"the {name} of it", "needs": list(needs)}


PLAN = {
    "steps": [
        step("money", "financial_analyst"),
        step("market", "market_researcher"),
        step("law", "compliance_checker", "money", "market"),
    ],
    "aggregate": "recommend yes or no",
}


def is_planner(request: Request) -> bool:
    return "You plan the work of a team" in request.system


def is_editor(request: Request) -> bool:
    return "You make one answer of the reports" in request.system


def is_member(role: str) -> Any:
    return lambda request: f"You are a {role}" in request.system


def script(model: ScriptedModel, plan: Any = PLAN) -> None:
    model.on(is_planner, text(plan if isinstance(plan, str) else json.dumps(plan)))
    model.on(is_member("financial analyst"), text("It earns 5 M."))
    model.on(is_member("market researcher"), text("It has a third of the market."))
    model.on(is_member("compliance checker"), text("Nothing speaks against it."))
    model.on(is_editor, text("Buy it."))


def team(messages: list[AnyMessage]) -> ToolMessage:
    return next(message for message in messages if isinstance(message, ToolMessage))


def asked(model: ScriptedModel, wanted: Any) -> list[str]:
    return [request.asked for request in model.requests if wanted(request)]


async def test_a_team_is_planned_works_in_order_and_answers_once(lead: Lead, model: ScriptedModel) -> None:
    script(model)
    model.will_say(call("run_team", goal=GOAL, constraints=["by Friday"]), text("We should."))

    messages = await lead.ask("Think about Acme")

    result = team(messages)
    assert (result.status, result.content) == ("success", "The team is done.\n\nBuy it.")
    assert [each["id"] for each in result.additional_kwargs["team"]["steps"]] == ["money", "market", "law"]
    assert result.additional_kwargs["subagent_token_usage"]["total_tokens"] > 0
    assert messages[-1].text == "We should."
    [law] = asked(model, is_member("compliance checker"))
    assert "It earns 5 M." in law
    assert "a third of the market" in law
    assert "- by Friday" in law
    [joined] = asked(model, is_editor)
    assert "Nothing speaks against it." in joined
    assert "recommend yes or no" in joined
    kinds = [event["type"] for event in lead.events if event["type"] != "task_running"]
    assert kinds[0] == "team_started"
    assert kinds[-1] == "team_ended"
    planned = next(event for event in lead.events if event["type"] == "team_planned")
    assert planned["source"] == "model"


async def test_steps_that_do_not_need_each_other_run_at_the_same_time(
    lead: Lead, model: ScriptedModel
) -> None:
    gate = threading.Event()
    model.on(is_planner, text(json.dumps(PLAN)))
    model.on(is_member("financial analyst"), text("done").held(gate))
    model.on(is_member("market researcher"), text("done").held(gate))
    model.on(is_member("compliance checker"), text("fine"))
    model.on(is_editor, text("joined"))
    model.will_say(call("run_team", goal=GOAL), text("ok"))

    asking = asyncio.create_task(lead.ask("go"))
    await lead.until("task_started", count=3)  # the planner and two members

    started = {
        event["task_id"].rpartition(".")[2] for event in lead.events if event["type"] == "task_started"
    }
    gate.set()
    messages = await asking

    assert started == {"plan", "money", "market"}
    assert team(messages).status == "success"


async def test_a_plan_of_no_use_is_replaced_by_one_of_fixed_rules(lead: Lead, model: ScriptedModel) -> None:
    script(model, "I would rather not.")
    model.will_say(call("run_team", goal="What is the revenue of Acme and its market?"), text("ok"))

    messages = await lead.ask("go")

    planned = next(event for event in lead.events if event["type"] == "team_planned")
    assert planned["source"] == "rules"
    assert [each["role"] for each in planned["steps"]] == ["financial_analyst", "market_researcher"]
    assert team(messages).content.endswith("Buy it.")


async def test_a_plan_of_the_callers_own_needs_no_planner_and_one_report_no_editor(
    lead: Lead, model: ScriptedModel
) -> None:
    script(model)
    model.will_say(call("run_team", goal=GOAL, steps=[step("money", "financial_analyst")]), text("ok"))

    messages = await lead.ask("go")

    assert team(messages).content == "The team is done.\n\nIt earns 5 M."
    assert asked(model, is_planner) == asked(model, is_editor) == []


async def test_findings_are_shared_and_contradictions_and_terms_reach_the_editor(
    lead: Lead, model: ScriptedModel
) -> None:
    plan = {"steps": [step("one", "financial_analyst"), step("two", "market_researcher", "one")]}
    model.on(is_planner, text(json.dumps(plan)))
    model.on(
        is_member("financial analyst"),
        call("share_finding", subject="Acme Corp", predicate="revenue", object="5 M", source="a.md"),
        text("five"),
    )
    model.on(
        is_member("market researcher"),
        call("team_findings", about="acme"),
        call("share_finding", subject="acme corp", predicate="revenue", object="6 M"),
        text("six"),
    )
    model.on(is_editor, text("It is 5 M; the 6 M has no source."))
    model.will_say(call("run_team", goal=GOAL), text("ok"))

    messages = await lead.ask("go")

    researcher = [request for request in model.requests if is_member("market researcher")(request)]
    assert "Acme Corp — revenue: 5 M (by one) [a.md]" in researcher[0].asked
    assert "Acme Corp — revenue: 5 M (by one) [a.md]" in researcher[1].last_message
    assert "The team disagrees" in researcher[2].last_message
    [joined] = asked(model, is_editor)
    assert "<contradictions>\n- Acme Corp — revenue: 5 M (by one); 6 M (by two)" in joined
    assert "<terms>\n- Acme Corp (not: acme corp)" in joined
    assert len(team(messages).additional_kwargs["team"]["contradictions"]) == 1
    assert {event["subject"] for event in lead.events if event["type"] == "team_finding"} == {
        "Acme Corp",
        "acme corp",
    }


async def test_a_step_that_fails_is_named_and_the_rest_still_counts(
    new_lead: NewLead, model: ScriptedModel
) -> None:
    lead = new_lead(
        settings=Settings.model_validate({"subagents": {"agents": {"financial_analyst": {"max_turns": 1}}}})
    )
    model.on(is_planner, text(json.dumps(PLAN)))
    model.on(is_member("financial analyst"), call("ls", description="look", path="/mnt/user-data/workspace"))
    model.on(is_member("market researcher"), text("A third."))
    model.on(is_member("compliance checker"), text("fine"))
    model.on(is_editor, text("Partly."))
    model.will_say(call("run_team", goal=GOAL), text("ok"))

    result = team(await lead.ask("go"))

    assert result.content.startswith(
        "The team is done, but not with everything.\n\n- Step money is not done: stopped"
    )
    [law] = asked(model, is_member("compliance checker"))
    assert "(not done: stopped at its limit of 1 turns)" in law


async def test_without_an_editor_the_reports_are_concatenated(lead: Lead, model: ScriptedModel) -> None:
    model.on(is_planner, text(json.dumps(PLAN)))
    model.on(is_member("financial analyst"), text("It earns 5 M."))
    model.on(is_member("market researcher"), text("A third."))
    model.on(is_member("compliance checker"), text("fine"))
    model.on(is_editor, text(""))
    model.will_say(call("run_team", goal=GOAL), text("ok"))

    result = team(await lead.ask("go"))

    assert "The results stand side by side" in result.content
    assert "## money (financial_analyst)\n\nIt earns 5 M." in result.content


async def test_bad_requests_are_answered_with_what_to_change(lead: Lead, model: ScriptedModel) -> None:
    model.will_say(
        call("run_team", goal="", members=["x"]),
        call("run_team", goal="g", members=["wizard"]),
        call("run_team", goal="g", steps=[step("a", "code_assistant", "a")]),
        call("run_team", goal="g", project_id="../../etc"),
        text("ok"),
    )

    messages = await lead.ask("go")

    answers = [message.text for message in messages if isinstance(message, ToolMessage)]
    assert "goal" in answers[0]
    assert "role 'wizard' not found; there are: financial_analyst" in answers[1]
    assert "the steps a wait for each other" in answers[2]
    assert "project_id" in answers[3]


async def test_tasks_of_a_team_count_towards_the_runs_total(new_lead: NewLead, model: ScriptedModel) -> None:
    lead = new_lead(options=RunOptions(subagent_enabled=True, max_total_subagents=2))
    script(model)
    model.will_say(call("run_team", goal=GOAL), text("ok"))

    result = team(await lead.ask("go"))

    assert result.content.count("this run may start 2 tasks") >= 2


async def test_sub_agents_and_members_get_no_team_of_their_own(lead: Lead, model: ScriptedModel) -> None:
    script(model)
    model.will_say(call("run_team", goal=GOAL), text("ok"))

    await lead.ask("go")

    members = [request for request in model.requests if "You are a financial analyst" in request.system]
    assert "share_finding" in members[0].tools
    assert not {"run_team", "task", "ask_clarification", "present_files"} & set(members[0].tools)
    leads = [request for request in model.requests if "run_team" in request.tools]
    assert "share_finding" not in leads[0].tools


async def test_what_a_team_learned_is_recalled_for_a_similar_goal_of_the_same_user(
    new_lead: NewLead, model: ScriptedModel
) -> None:
    lead = new_lead()
    lead.dependencies = replace(lead.dependencies, store=InMemoryStore())
    lead.agents = type(lead.agents)(lead.dependencies)
    script(model)
    model.will_say(call("run_team", goal="Shall we buy Acme?"), text("ok"))
    model.will_say(call("run_team", goal="Shall we sell Acme?"), text("ok"))
    model.will_say(call("run_team", goal="Bake bread"), text("ok"))

    for question in ("one", "two", "three"):
        await lead.ask(question)

    first, second, third = asked(model, is_planner)
    assert "<experience>" not in first
    assert "An earlier team was asked: Shall we buy Acme? It came to: Buy it." in second
    assert "<experience>" not in third


async def resume(lead: Lead, **decision: Any) -> list[AnyMessage]:
    command: Command[Any] = Command(resume={"decisions": [decision]})
    result = await lead.agent.ainvoke(command, lead.config, context=lead.context)
    return list(result["messages"])


async def interrupts(lead: Lead) -> list[Any]:
    state = await lead.agent.aget_state(lead.config)
    return [each.value for each in state.interrupts]


async def test_people_decide_on_plan_step_and_result_and_nothing_is_done_twice(
    lead: Lead, model: ScriptedModel
) -> None:
    plan = {**PLAN, "steps": [*PLAN["steps"][:2], step("boss", "human_approver", "money")]}
    script(model, plan)
    model.will_say(call("run_team", goal=GOAL, approve=["plan", "result"]), text("ok"))

    await lead.ask("go")
    [about_plan] = await interrupts(lead)
    shorter = [each for each in plan["steps"] if each["id"] != "market"]
    await resume(lead, type="edit", edited_action={"name": "approve_plan", "args": {"steps": shorter}})
    [about_step] = await interrupts(lead)
    await resume(lead, type="approve")
    [about_result] = await interrupts(lead)
    messages = await resume(
        lead, type="edit", edited_action={"name": "approve_result", "args": {"answer": "Buy half of it."}}
    )

    assert about_plan["review_configs"] == [
        {"action_name": "approve_plan", "allowed_decisions": ["approve", "edit", "reject"]}
    ]
    assert about_step["action_requests"][0]["args"]["reports"] == {"money": "It earns 5 M."}
    assert about_result["action_requests"][0]["args"] == {"answer": "It earns 5 M."}
    assert team(messages).content == "The team is done.\n\nBuy half of it."
    assert len(asked(model, is_planner)) == 1
    assert len(asked(model, is_member("financial analyst"))) == 1
    assert asked(model, is_member("market researcher")) == []


async def test_a_rejection_stops_the_team_with_what_it_has(lead: Lead, model: ScriptedModel) -> None:
    steps = [step("money", "financial_analyst"), step("boss", "human_approver", "money")]
    steps.append(step("market", "market_researcher", "boss"))
    script(model)
    model.will_say(call("run_team", goal=GOAL, steps=steps), text("ok"))

    await lead.ask("go")
    messages = await resume(lead, type="reject", message="too dear")

    result = team(messages)
    assert result.status == "error"
    assert "A person did not approve: too dear" in result.content
    assert "It earns 5 M." in result.content
    assert asked(model, is_member("market researcher")) == []


async def test_where_nobody_can_answer_nothing_is_approved(lead: Lead, model: ScriptedModel) -> None:
    script(model)
    model.will_say(call("run_team", goal=GOAL, approve=["plan"]), text("ok"))
    lead.context = replace(lead.context, is_interactive=False)

    result = team(await lead.ask("go"))

    assert result.status == "error"
    assert "nobody can answer in this run" in result.content


async def test_questions_of_members_reach_the_person_in_a_fixed_order_and_each_gets_its_own_answer(
    new_lead: NewLead, model: ScriptedModel
) -> None:
    rules = [{"tool": "ls", "action": "ask"}]
    lead = new_lead(settings=Settings.model_validate({"guardrails": {"rules": rules}}))
    steps = [step("money", "financial_analyst"), step("market", "market_researcher")]
    steps.append(step("boss", "human_approver", "money"))
    look = call("ls", description="look", path="/mnt/user-data/workspace")
    model.on(is_member("financial analyst"), look, text("money done"))
    model.on(is_member("market researcher"), look, look, text("market done"))
    model.on(is_editor, text("joined"))
    model.will_say(call("run_team", goal=GOAL, steps=steps, approve=["result"]), text("ok"))

    await lead.ask("go")
    asked_about = [await interrupts(lead)]
    await resume(lead, type="approve")
    asked_about.append(await interrupts(lead))
    await resume(lead, type="reject", message="not now")
    asked_about.append(await interrupts(lead))
    await resume(lead, type="approve")
    asked_about.append(await interrupts(lead))
    messages = await resume(
        lead, type="edit", edited_action={"name": "approve_result", "args": {"answer": "in the end"}}
    )

    names = [each[0]["action_requests"][0]["name"] for each in asked_about]
    tasks = [each[0].get("task_id", "").rpartition(".")[2] for each in asked_about]
    assert list(zip(names, tasks, strict=True)) == [
        ("ls", "money"),
        ("ls", "market"),
        ("approve_step", ""),
        ("approve_result", ""),
    ]
    results = {
        role: [
            request.last_message
            for request in model.requests
            if is_member(role)(request) and request.messages[-1]["role"] == "tool"
        ]
        for role in ("financial analyst", "market researcher")
    }
    assert "rejected" not in results["financial analyst"][0]
    assert "not now" in results["market researcher"][0]
    assert team(messages).content == "The team is done.\n\nin the end"
    assert len(asked(model, is_editor)) == 1


async def test_a_team_thinks_as_the_settings_of_sub_agents_say(
    new_lead: NewLead, model: ScriptedModel
) -> None:
    lead = new_lead(
        settings=Settings.model_validate({"subagents": {"thinking": False}}),
        models=scripted_models(
            model,
            supports_thinking=True,
            when_thinking_enabled={"extra_body": {"thinking": {"type": "enabled"}}},
        ),
    )
    script(model)
    model.will_say(call("run_team", goal=GOAL), text("Done."))

    await lead.ask("Go.")

    thinking = [request.body["thinking"]["type"] for request in model.requests]
    assert thinking == ["enabled", *["disabled"] * (len(thinking) - 2), "enabled"]
    assert len(thinking) == 7


@pytest.mark.parametrize(
    "answer", [{"decisions": [{"type": "approve"}]}, {"type": "approve"}, [{"type": "approve"}]]
)
def test_approval_is_read_in_every_form_that_clients_send(answer: Any) -> None:
    assert TeamDecision.of(answer, "x", {"a": 1}).is_approved


def test_an_edit_changes_what_it_names() -> None:
    answer = {"decisions": [{"type": "edit", "edited_action": {"name": "x", "args": {"b": 2}}}]}

    decision = TeamDecision.of(answer, "x", {"a": 1, "b": 1})

    assert (decision.is_approved, decision.is_edited, decision.args) == (True, True, {"a": 1, "b": 2})


def test_a_rejection_keeps_its_reason() -> None:
    decision = TeamDecision.of({"decisions": [{"type": "reject", "message": "too dear"}]}, "x", {})

    assert (decision.is_approved, decision.message) == (False, "too dear")


@pytest.mark.parametrize("answer", [None, "yes", True, 7, [], {}, {"decisions": []}, {"type": "edit"}])
def test_anything_else_is_no_decision(answer: Any) -> None:
    with pytest.raises(InvalidInputError, match="resume with"):
        TeamDecision.of(answer, "x", {})


def test_after_an_invalid_answer_the_question_is_asked_again_with_the_reason() -> None:
    asked: list[Any] = []
    answers = iter(
        ["yes", {"type": "edit", "edited_action": {"name": "x", "args": {"a": 0}}}, {"type": "approve"}]
    )

    def ask(request: Any) -> Any:
        asked.append(request["action_requests"][0]["description"])
        return next(answers)

    def check(args: Any) -> None:
        raise InvalidInputError("a must be above 0")

    decision = decide(ask, "x", {"a": 1}, "Is it right?", check=check)

    assert decision.is_approved
    assert asked[0] == "Is it right?"
    assert "is no decision" in asked[1]
    assert "a must be above 0" in asked[2]


def test_too_many_invalid_answers_are_a_rejection() -> None:
    decision = decide(lambda request: "maybe", "x", {}, "?")

    assert not decision.is_approved
