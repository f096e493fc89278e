"""The lead agent, driven over HTTP by a scripted model."""

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from support.lead import Lead, NewLead, scripted_models
from support.model_server import Request, ScriptedModel, call, calls, raw_call, status, text

from deerflow.agents.middlewares import AgentKind
from deerflow.agents.middlewares.title import TitleMiddleware
from deerflow.agents.middlewares.uploads import ONLY_NAMES
from deerflow.config import Settings, TitleSettings
from deerflow.domain import RunOptions
from deerflow.errors import ConfigError, SandboxError
from deerflow.lead import LeadAgents
from deerflow.lead.chain import build_chain
from deerflow.skills import Skills

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)


# Building


def test_options_that_do_not_change_the_agent_share_one(lead: Lead) -> None:
    first = lead.agents.get(RunOptions())

    assert lead.agents.get(RunOptions(mode="ultra", max_total_subagents=5)) is first
    assert lead.agents.get(RunOptions(max_concurrent_subagents=4)) is first
    assert lead.agents.get(RunOptions(subagent_enabled=True)) is not first
    assert lead.agents.get(RunOptions(thinking_enabled=False)) is not first
    assert len(lead.dependencies.cache) == 3


def test_the_number_of_tasks_is_clamped_before_it_splits_agents(lead: Lead) -> None:
    four = lead.agents.get(RunOptions(subagent_enabled=True, max_concurrent_subagents=4))

    assert lead.agents.get(RunOptions(subagent_enabled=True, max_concurrent_subagents=99)) is four
    two = lead.agents.get(RunOptions(subagent_enabled=True, max_concurrent_subagents=2))
    assert lead.agents.get(RunOptions(subagent_enabled=True, max_concurrent_subagents=-1)) is two


async def test_sub_agents_that_need_a_shell_are_offered_only_where_there_is_one(lead: Lead) -> None:
    has_shell = True
    dependencies = replace(lead.dependencies, has_shell=lambda: has_shell)
    agents = LeadAgents(dependencies)
    offered = [config.name for config in dependencies.offered_subagents()]
    with_shell = agents.get(RunOptions(subagent_enabled=True))

    has_shell = False

    assert "bash" in offered
    assert [config.name for config in dependencies.offered_subagents()] == [
        name for name in offered if name != "bash"
    ]
    assert agents.get(RunOptions(subagent_enabled=True)) is not with_shell


def test_new_settings_and_new_skills_make_new_agents(lead: Lead, tmp_path: Path) -> None:
    skill = tmp_path / "skills" / "public" / "one" / "SKILL.md"
    ticks = iter(range(0, 1000, 10))
    dependencies = replace(lead.dependencies, skills=Skills(tmp_path / "skills", clock=lambda: next(ticks)))
    before = LeadAgents(dependencies).get(RunOptions())

    assert LeadAgents(dependencies).get(RunOptions()) is before
    assert LeadAgents(replace(dependencies, settings=Settings())).get(RunOptions()) is not before
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: one\ndescription: First.\n---\n")
    assert LeadAgents(dependencies).get(RunOptions()) is not before


def test_a_detector_whose_config_does_not_fit_is_named(lead: Lead) -> None:
    detector = {"use": "fractions:Fraction", "config": {"surprise": 1}}
    settings = Settings.model_validate({"safety_finish_reason": {"detectors": [detector]}})

    with pytest.raises(ConfigError, match=r"safety_finish_reason.detectors: .*fractions:Fraction"):
        build_chain(settings, kind=AgentKind.LEAD, model=lead.dependencies.models.create)


def test_the_chain_has_one_node_and_says_for_whom_each_part_is(lead: Lead) -> None:
    settings = Settings(title=TitleSettings(model_name="small"))
    chain = {
        kind: [
            type(m).__name__
            for m in build_chain(
                settings,
                kind=kind,
                model=lead.models.create,
                subagent_limit=3 if kind is AgentKind.LEAD else 0,
            )
        ]
        for kind in (AgentKind.LEAD, AgentKind.SUBAGENT)
    }

    lead_only = [name for name in chain[AgentKind.LEAD] if name not in chain[AgentKind.SUBAGENT]]
    assert {"TurnStartMiddleware", "TitleMiddleware", "UploadsMiddleware", "SubagentLimitMiddleware"} <= set(
        lead_only
    )
    assert [name for name in chain[AgentKind.LEAD] if name not in lead_only] == chain[AgentKind.SUBAGENT]
    assert chain[AgentKind.LEAD][-1] == "ReadyToolsMiddleware"
    assert set(lead.agent.nodes) == {"__start__", "TurnStartMiddleware.before_agent", "model", "tools"}


# A turn


async def test_a_turn_writes_four_checkpoints_and_each_tool_step_two_more(
    lead: Lead, model: ScriptedModel
) -> None:
    model.will_say(text("Hello."), call("ls", path="/mnt/user-data/workspace"), text("Empty."))

    await lead.ask("Hi.")
    one_turn = len([state async for state in lead.checkpointer.alist(lead.config)])
    await lead.ask("Look.")
    both = len([state async for state in lead.checkpointer.alist(lead.config)])

    assert (one_turn, both - one_turn) == (4, 6)


async def test_a_turn_leaves_title_folders_and_sandbox_in_the_state(lead: Lead, model: ScriptedModel) -> None:
    model.will_say(text("Hello."), text("Still here."))
    await lead.ask("What is **DeerFlow**, and why should I use it today?")
    first = await lead.values()
    await lead.ask("Something else entirely")

    values = await lead.values()

    assert values["title"] == first["title"] == "What is DeerFlow, and why should…"
    assert values["thread_data"] == {
        "workspace_path": "/mnt/user-data/workspace",
        "uploads_path": "/mnt/user-data/uploads",
        "outputs_path": "/mnt/user-data/outputs",
    }
    assert values["sandbox"] == {"sandbox_id": "t1"}


async def test_the_model_is_told_of_new_uploads_once_and_the_prefix_stays(
    lead: Lead, model: ScriptedModel
) -> None:
    model.will_say(text("Seen."), text("Seen too."))
    (lead.folders.uploads / "a.md").write_text("x" * 2048)
    (lead.folders.uploads / ".b.part").write_text("half")
    (lead.folders.uploads / "link").symlink_to("/etc/passwd")
    messages = await lead.ask("Keep it.")
    (lead.folders.uploads / "c.md").write_text("y")

    await lead.ask("And this.")

    first, second = ([m["content"] for m in request.messages] for request in model.requests)
    block = "<uploaded_files>\n- /mnt/user-data/uploads/{}\n" + ONLY_NAMES + "\n</uploaded_files>\n\n{}"
    listed = block.format("a.md (2.0 KB)", "Keep it.")
    assert first[2] == listed
    assert second[:3] == first
    assert second[4] == block.format("c.md (1 B)", "And this.")
    assert messages[0].text == "Keep it."


async def test_a_model_that_talks_about_uploads_unread_is_told_to_read_them(
    lead: Lead, model: ScriptedModel
) -> None:
    path = "/mnt/user-data/uploads/a.md"
    (lead.folders.uploads / "a.md").write_text("Kite has no compaction.")
    model.will_say(
        text("It is about ducks."), call("read_file", description="", path=path), text("It is about kites.")
    )

    messages = await lead.ask("Summarize the file.")

    assert [message.text for message in messages if isinstance(message, AIMessage)][
        -1
    ] == "It is about kites."
    assert "It is about ducks." not in [message.text for message in messages]
    assert "You have not read the uploaded files" in model.requests[1].last_message
    assert path in model.requests[1].last_message
    assert len(model.requests) == 3


async def test_the_shell_is_offered_only_where_commands_run(model: ScriptedModel, new_lead: NewLead) -> None:
    model.will_say(text("a"), text("b"))
    with_shell = new_lead()
    without = new_lead("t2", refusal="Commands are off here.")

    await with_shell.ask("Hi.")
    await without.ask("Hi.")

    assert "bash" in model.requests[0].tools
    assert "bash" not in model.requests[1].tools
    assert set(model.requests[0].tools) - set(model.requests[1].tools) == {"bash", "python"}


async def test_nobody_is_asked_where_nobody_can_answer(lead: Lead, model: ScriptedModel) -> None:
    model.will_say(text("a"), text("b"))

    lead.context = replace(lead.context, is_interactive=False)
    await lead.ask("Hi.")
    lead.context = replace(lead.context, is_interactive=True, extra={"disable_clarification": True})
    await lead.ask("Hi.")

    assert all("ask_clarification" not in request.tools for request in model.requests)


async def test_a_stopped_turn_can_be_followed_by_another(lead: Lead, model: ScriptedModel) -> None:
    model.will_say(call("bash", command="echo started; sleep 60"))
    model.on("Never mind.", text("All right."))
    run = asyncio.create_task(lead.ask("Wait."))
    await lead.until("tool_output")
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    messages = await lead.ask("Never mind.")

    assert [m.type for m in messages] == ["human", "ai", "human", "ai"]
    sent = model.requests[-1].messages
    assert [m["role"] for m in sent] == ["system", "user", "user", "assistant", "tool", "user"]
    assert "interrupted" in sent[4]["content"]


async def test_a_tool_that_fails_is_news_for_the_model_and_not_the_end(
    lead: Lead, model: ScriptedModel
) -> None:
    @tool
    async def ours() -> str:
        """Fail in our words."""
        raise SandboxError("the disk is full; delete something")

    @tool
    async def theirs() -> str:
        """Fail in other words."""
        raise ZeroDivisionError("division by zero")

    lead.agents = LeadAgents(replace(lead.dependencies, extra_tools=[ours, theirs]))
    model.will_say(calls(call("ours"), call("theirs"), call("nothing")), text("I see."))

    messages = await lead.ask("Try.")

    results = {m.name: (m.status, m.text) for m in messages if m.type == "tool"}
    assert results["ours"] == ("error", "Error: the disk is full; delete something")
    assert results["theirs"][1].startswith("Error: theirs failed (ZeroDivisionError: division by zero).")
    assert "not a valid tool" in results["nothing"][1]
    assert messages[-1].text == "I see."


async def test_a_question_ends_the_turn_and_the_reply_goes_on(lead: Lead, model: ScriptedModel) -> None:
    question = call(
        "ask_clarification", question="Which one?", clarification_type="missing_info", options=["A", "B"]
    )
    model.will_say(calls(call("bash", command="touch guessed"), question), text("B it is."))

    asked = await lead.ask("Fix the file.")
    answered = await lead.ask("B")

    assert [m.type for m in asked] == ["human", "ai", "tool"]
    assert "Which one?" in asked[-1].text
    assert not (lead.folders.user_data / "guessed").exists()
    assert answered[-1].text == "B it is."


async def test_an_image_is_shown_once(model: ScriptedModel, new_lead: NewLead) -> None:
    lead = new_lead(models=scripted_models(model, supports_vision=True))
    (lead.folders.uploads / "p.png").write_bytes(PNG)
    model.will_say(
        call("view_image", image_path="/mnt/user-data/uploads/p.png"),
        call("ls", path="/mnt/user-data/uploads"),
        text("A picture."),
    )

    messages = await lead.ask("What is on it?")

    shown = [[m for m in request.messages if "data:image/png;base64" in str(m)] for request in model.requests]
    assert [len(each) for each in shown] == [0, 1, 0]
    assert (await lead.values())["viewed_images"] == {}
    assert [m.type for m in messages] == ["human", "ai", "tool", "ai", "tool", "ai"]


async def test_malformed_arguments_are_answered_and_the_history_stays_whole(
    lead: Lead, model: ScriptedModel
) -> None:
    broken = raw_call("bash", '{"command": "rm -r x')
    model.will_say(
        calls(broken, call("ls", path="/mnt/user-data/workspace")), broken, text("Sorry."), text("Yes.")
    )

    first = await lead.ask("Look.")
    messages = await lead.ask("Again?")

    assert [m.type for m in first] == ["human", "ai", "tool", "tool", "ai", "tool", "ai"]
    assert [m.status for m in first if m.type == "tool"] == ["success", "error", "error"]
    assert "complete JSON" in model.requests[1].last_message
    assert not lead.context.sandbox.commands  # type: ignore[attr-defined]
    assert messages[-1].text == "Yes."


# Titles by a model


def wants_title(request: Request) -> bool:
    return "Write a title" in request.asked


async def test_a_model_can_write_the_title_beside_the_first_answer(
    model: ScriptedModel, new_lead: NewLead
) -> None:
    settings = Settings(title=TitleSettings(model_name="small"))
    lead = new_lead(settings=settings)
    model.on(wants_title, text('"**A fine title**"\n'))
    model.will_say(text("Hello."), text("Again."))
    streamed = []
    values = {"messages": [HumanMessage("Hi there", id="q")]}

    async for message, _ in lead.agent.astream(
        values, lead.config, context=lead.context, stream_mode="messages"
    ):
        streamed.append(message.text)
    await lead.ask("More.")

    assert (await lead.values())["title"] == "A fine title"
    assert "".join(streamed) == "Hello."
    assert len([request for request in model.requests if wants_title(request)]) == 1


async def test_a_title_that_fails_costs_nothing_but_itself(
    model: ScriptedModel, new_lead: NewLead, caplog: pytest.LogCaptureFixture
) -> None:
    lead = new_lead(settings=Settings(title=TitleSettings(model_name="small")))
    model.on(wants_title, status(500))
    model.will_say(text("Hello."))

    with caplog.at_level(logging.WARNING):
        messages = await lead.ask("Hi there")

    assert messages[-1].text == "Hello."
    assert (await lead.values())["title"] == "Hi there"
    assert "title was not written" in caplog.text


async def test_a_title_that_hangs_does_not_hold_the_answer_up(lead: Lead, model: ScriptedModel) -> None:
    model.on(wants_title, text("never", first=60))
    middleware = TitleMiddleware(
        lambda: lead.models.create("small"), settings=TitleSettings(), grace_seconds=0.05
    )
    request = ModelRequest(model=lead.models.create(), messages=[HumanMessage("Hi")], runtime=None)
    answer = ModelResponse(result=[AIMessage("Hello.")])

    async def handler(request: object) -> ModelResponse[object]:
        await model.until(lambda server: server.in_flight == 1)
        return answer

    async with asyncio.timeout(30):
        result = await middleware.awrap_model_call(request, handler)  # type: ignore[arg-type]

    assert result is answer
    await model.until(lambda server: server.aborted == 1)


async def test_titles_can_be_switched_off(model: ScriptedModel, new_lead: NewLead) -> None:
    lead = new_lead(settings=Settings(title=TitleSettings(enabled=False, model_name="small")))
    model.will_say(text("Hello."))

    await lead.ask("Hi there")

    assert not (await lead.values()).get("title")
    assert len(model.requests) == 1


# Many calls in one answer


async def test_an_answers_calls_run_a_few_at_a_time_and_keep_their_order(
    lead: Lead, model: ScriptedModel
) -> None:
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    is_full = asyncio.Event()

    @tool
    async def hold(number: int, agent: str) -> str:
        """Wait until as many run at once as may."""
        running[agent] += 1
        most[agent] = max(most[agent], running[agent])
        if running.total() == 8 * 4:
            is_full.set()
        async with asyncio.timeout(30):
            await is_full.wait()
        running[agent] -= 1
        return f"{agent} {number}"

    lead.agents = LeadAgents(replace(lead.dependencies, extra_tools=[hold]))
    parts = [call("task", description="part", prompt=f"part {n}") for n in range(3)]
    for n in range(3):
        many = calls(*(call("hold", number=number, agent=f"sub {n}") for number in range(20)))
        model.on(f"part {n}", many, text("found"))
    own = [call("hold", number=number, agent="lead") for number in range(20)]
    model.will_say(calls(*own, *parts), text("Done."))

    messages = await lead.ask("Try.")

    results = [m.text for m in messages if m.type == "tool"]
    assert results[:20] == [f"lead {number}" for number in range(20)]
    assert most == {"lead": 8, "sub 0": 8, "sub 1": 8, "sub 2": 8}


# Sub-agents of one answer


async def test_task_calls_beyond_the_limit_are_dropped_with_a_warning(
    lead: Lead, model: ScriptedModel, caplog: pytest.LogCaptureFixture
) -> None:
    parts = [call("task", description=f"part {n}", prompt=f"part {n}") for n in range(5)]
    model.on("part", text("found"))
    model.will_say(calls(*parts, call("ls", path="/mnt/user-data/workspace")), text("Done."))

    with caplog.at_level(logging.WARNING):
        messages = await lead.ask("Compare.")

    asked = next(m for m in messages if isinstance(m, AIMessage))
    assert [each["name"] for each in asked.tool_calls] == ["task", "task", "task", "ls"]
    assert [m.name for m in messages if m.type == "tool"] == ["task", "task", "task", "ls"]
    assert "2 task calls dropped, one reply may start 3" in caplog.text
    assert 'limit="3"' in model.requests[0].system


async def test_many_runs_share_one_agent_without_mixing(model: ScriptedModel, new_lead: NewLead) -> None:
    leads = [new_lead(f"t{n}") for n in range(20)]
    shared = leads[0].agent
    model.on(lambda request: True, lambda request: text(f"You said {request.asked}"))

    async def ask(number: int) -> str:
        values = {"messages": [HumanMessage(f"number {number}", id="q")]}
        config = {"configurable": {"thread_id": f"thread-{number}"}}
        result = await shared.ainvoke(values, config, context=leads[number].context)
        return str(result["messages"][-1].text)

    said = await asyncio.gather(*map(ask, range(20)))

    assert said == [f"You said number {n}" for n in range(20)]
