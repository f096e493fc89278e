"""Decisions about tool calls, in a real graph with real interrupts."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, Interrupt
from support.loop_watch import LoopWatch
from support.sandboxes import FolderSandbox
from support.tool_calls import ScriptedCalls, tool_call

from deerflow.agents.allowed_calls import AllowedCalls
from deerflow.agents.middlewares.approval import (
    MARK,
    MAX_QUESTIONS,
    GuardrailMiddleware,
    approval_request,
    deadline,
    last_rejection,
    read_answer,
)
from deerflow.config import Settings
from deerflow.config.auth import ProviderSettings
from deerflow.config.tools import GuardrailRule, GuardrailsSettings
from deerflow.context import RunContext
from deerflow.domain import ThreadFolders
from deerflow.errors import ConflictError, InvalidInputError
from deerflow.runtime.interrupts import answers_by_interrupt
from deerflow.tools.policy import PolicyCall, PolicyDecision

ASK = GuardrailsSettings(rules=(GuardrailRule(tool="pay", action="ask"),))
REQUEST = approval_request(
    "pay",
    {"amount": 1},
    call_id="c1",
    call_hash="ab",
    why=PolicyDecision("ask", "x"),
    expires_at=datetime.now(UTC),
)


class PaymentAgent:
    """An agent that pays, and whoever is asked about it."""

    def __init__(
        self,
        root: Path,
        settings: GuardrailsSettings,
        calls: Sequence[dict[str, Any]],
        store: InMemoryStore | None = None,
    ) -> None:
        self.store = store or InMemoryStore()
        self.paid: list[int] = []
        self.events: list[Any] = []

        @tool
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        self.context = RunContext(
            run_id="r1",
            thread_id="t1",
            user_id="u1",
            settings=Settings(),
            folders=ThreadFolders("t1", root),
            sandbox=FolderSandbox(root),
            publish=self.events.append,
        )
        model = ScriptedCalls(script=[AIMessage("", tool_calls=[each]) for each in calls])
        self._agent: Any = create_agent(
            model,
            [pay],
            middleware=[GuardrailMiddleware(settings=settings)],
            context_schema=RunContext,
            checkpointer=InMemorySaver(),
            store=self.store,
        )

    async def go(self, values: Any = None, **changes: Any) -> dict[str, Any]:
        state: dict[str, Any] = await self._agent.ainvoke(
            values or {"messages": [HumanMessage("go")]},
            {"configurable": {"thread_id": "t1"}},
            context=replace(self.context, **changes),
        )
        return state

    async def answer(self, answer: Any) -> dict[str, Any]:
        return await self.go(Command(resume=answer))


def last_result(state: dict[str, Any]) -> str:
    return [message.text for message in state["messages"] if isinstance(message, ToolMessage)][-1]


async def test_a_call_waits_for_its_approval_and_runs_once(tmp_path: Path) -> None:
    agent = PaymentAgent(tmp_path, ASK, [tool_call("pay", amount=5)])

    asked = await agent.go()
    paid_before = list(agent.paid)
    ended = await agent.answer({"decisions": [{"type": "approve"}]})

    value = asked["__interrupt__"][0].value
    assert value["action_requests"][0]["args"] == {"amount": 5}
    assert (paid_before, agent.paid) == ([], [5])
    assert last_result(ended) == "paid 5"
    assert [event["decision"] for event in agent.events] == ["approve"]


@pytest.mark.parametrize(("scope", "elsewhere"), [("thread", [5]), ("always", [5, 5])])
async def test_a_call_that_is_allowed_for_good_is_not_asked_about_until_it_is_taken_back(
    tmp_path: Path, scope: str, elsewhere: list[int]
) -> None:
    agent = PaymentAgent(
        tmp_path, ASK, [tool_call("pay", number, amount=amount) for number, amount in enumerate((5, 5, 6))]
    )
    other, later = (PaymentAgent(tmp_path, ASK, [tool_call("pay", amount=5)], agent.store) for _ in range(2))
    allowed = AllowedCalls(agent.store, "u1")

    first = await agent.go()
    second = await agent.answer({"decisions": [{"type": "approve", "remember": scope}]})
    await other.go(thread_id="t2")

    assert first["__interrupt__"][0].value["remember"] == ["thread", "always"]
    assert agent.paid == [5, 5]  # the same call ran unasked, and the one with another amount is asked about
    assert second["__interrupt__"][0].value["action_requests"][0]["args"] == {"amount": 6}
    assert [5, *other.paid] == elsewhere
    (kept,) = await allowed.all()
    assert (kept.tool, kept.args, kept.scope, kept.thread_id) == ("pay", '{"amount":5}', scope, "t1")
    await allowed.revoke(kept.id)
    assert (await later.go())["__interrupt__"]


async def test_a_slow_pattern_holds_nobody_up(tmp_path: Path) -> None:
    slow = GuardrailRule(tool="pay", pattern="(?:x+x+)+y", action="deny")
    agent = PaymentAgent(tmp_path, GuardrailsSettings(rules=(slow,)), [tool_call("pay", amount="x" * 90_000)])

    async with LoopWatch():
        state = await agent.go()

    assert "rule 1 of guardrails.rules does not allow it" in last_result(state)


async def test_no_permission_lets_a_denied_call_through(tmp_path: Path) -> None:
    denied = GuardrailsSettings(rules=(GuardrailRule(tool="pay", action="deny"),))
    agent = PaymentAgent(tmp_path, denied, [tool_call("pay", amount=5)])
    hash_of_call = PolicyCall("pay", {"amount": 5}).hash
    allowed = AllowedCalls(agent.store, "u1")
    await allowed.allow("pay", {"amount": 5}, call_hash=hash_of_call, scope="always", thread_id="t1")

    await agent.go()

    assert agent.paid == []


async def test_an_edit_runs_what_the_person_wrote(tmp_path: Path) -> None:
    agent = PaymentAgent(tmp_path, ASK, [tool_call("pay", amount=5)])
    await agent.go()

    ended = await agent.answer({"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 1}}})

    assert agent.paid == [1]
    assert "It ran with: {'amount': 1}" in last_result(ended)


async def test_an_edit_cannot_become_another_tool(tmp_path: Path) -> None:
    agent = PaymentAgent(tmp_path, ASK, [tool_call("pay", amount=5)])
    await agent.go()

    asked = await agent.answer({"type": "edit", "edited_action": {"name": "bash", "args": {"command": "id"}}})

    assert "not the tool" in asked["__interrupt__"][0].value["action_requests"][0]["description"]
    assert agent.paid == []


async def test_answers_that_never_make_sense_end_as_a_rejection(tmp_path: Path) -> None:
    agent = PaymentAgent(tmp_path, ASK, [tool_call("pay", amount=5)])
    state = await agent.go()

    for _ in range(MAX_QUESTIONS):
        assert "__interrupt__" in state
        state = await agent.answer("perhaps")

    assert "could not be used" in last_result(state)
    assert agent.paid == []


async def test_a_rejected_call_is_rejected_again_unasked_but_another_is_asked_about(tmp_path: Path) -> None:
    calls = [tool_call("pay", number, amount=amount) for number, amount in enumerate((5, 5, 6))]
    agent = PaymentAgent(tmp_path, ASK, calls)
    await agent.go()

    asked = await agent.answer({"type": "reject", "message": "too dear"})

    assert asked["__interrupt__"][0].value["action_requests"][0]["args"] == {"amount": 6}
    assert "too dear" in last_result(asked)
    assert agent.paid == []


async def test_where_nobody_answers_nothing_is_asked(tmp_path: Path) -> None:
    agent = PaymentAgent(tmp_path, ASK, [tool_call("pay", amount=5)])

    ended = await agent.go(is_interactive=False)

    assert "nobody can answer in this run" in last_result(ended)
    assert agent.paid == []


async def test_an_answer_after_the_time_limit_counts_as_none(tmp_path: Path) -> None:
    agent = PaymentAgent(
        tmp_path, ASK.model_copy(update={"ask_timeout_seconds": 1e-6}), [tool_call("pay", amount=5)]
    )
    await agent.go()

    ended = await agent.answer({"type": "approve"})

    assert "nobody answered within 1e-06 seconds" in last_result(ended)
    assert agent.paid == []


class Broken:
    def evaluate(self, request: object) -> None:
        raise RuntimeError("out of order")


@pytest.mark.parametrize("fail_closed", [True, False])
async def test_a_provider_that_fails_counts_as_the_settings_say(tmp_path: Path, fail_closed: bool) -> None:
    settings = GuardrailsSettings(
        enabled=True, fail_closed=fail_closed, provider=ProviderSettings(use=f"{__name__}:Broken")
    )
    agent = PaymentAgent(tmp_path, settings, [tool_call("pay", amount=5)])

    ended = await agent.go()

    assert agent.paid == ([] if fail_closed else [5])
    assert ("provider failed" in last_result(ended)) is fail_closed


async def test_what_a_provider_denies_no_rule_lets_through(tmp_path: Path) -> None:
    use = "deerflow.guardrails.builtin:AllowlistProvider"
    settings = GuardrailsSettings(
        enabled=True,
        provider=ProviderSettings(use=use, config={"denied_tools": ["pay"]}),
        rules=(GuardrailRule(tool="*", action="allow"),),
    )
    agent = PaymentAgent(tmp_path, settings, [tool_call("pay", amount=5)])

    ended = await agent.go()

    assert "pay is in denied_tools" in last_result(ended)
    assert agent.paid == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "no decision"),
        ({"decisions": [{"type": "approve"}, {"type": "approve"}]}, "several"),
        ({"type": "approve", "hash": "cd"}, "another call"),
        ({"decisions": [{"type": "approve", "hash": "cd"}]}, "another call"),
        ({"decisions": [{"type": "approve"}], "hash": 7}, "another call"),
        ({"type": "respond", "message": "hi"}, "must be"),
        ({"type": "edit", "edited_action": {"args": [1]}}, "no edited_action"),
    ],
)
def test_an_answer_that_cannot_be_used_says_why(answer: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        read_answer(answer, REQUEST)


def test_a_deadline_counts_from_the_checkpoint_in_front_of_the_call() -> None:
    limit = deadline(str(uuid6()), 60)

    assert abs(limit - datetime.now(UTC) - timedelta(seconds=60)) < timedelta(seconds=5)


def test_a_rejection_counts_until_the_user_speaks_again() -> None:
    mark = {MARK: {"decision": "reject", "hash": "ab", "reason": "no"}}
    rejected = ToolMessage("x", tool_call_id="1", additional_kwargs=mark)
    note = HumanMessage("news", additional_kwargs={"hide_from_ui": True})
    form = HumanMessage("yes", additional_kwargs={"hide_from_ui": True, "human_input_response": {}})
    before: list[AnyMessage] = [HumanMessage("go"), rejected]

    assert last_rejection([*before, note], "ab") == "no"
    assert last_rejection(before, "cd") is None
    assert last_rejection([*before, form], "ab") is None
    assert last_rejection([*before, HumanMessage("again")], "ab") is None


ONE = Interrupt(value={"hash": "aa"}, id="1" * 32)
TWO = Interrupt(value={"hash": "bb"}, id="2" * 32)
YES = {"type": "approve"}


@pytest.mark.parametrize(
    ("resume", "found"),
    [
        ({"1" * 32: YES}, {"1" * 32: YES}),
        ({"decisions": [YES, YES]}, {"1" * 32: {"decisions": [YES]}, "2" * 32: {"decisions": [YES]}}),
        ({**YES, "hash": "bb"}, {"2" * 32: {**YES, "hash": "bb"}}),
    ],
)
def test_answers_find_their_questions(resume: Any, found: Any) -> None:
    assert answers_by_interrupt(resume, [ONE, TWO]) == found


@pytest.mark.parametrize(
    "resume",
    [YES, {}, "yes", {"3" * 32: YES}, {**YES, "hash": "cc"}, {"1" * 32: {**YES, "hash": "bb"}}, [YES] * 3],
)
def test_an_answer_without_a_question_is_refused(resume: Any) -> None:
    with pytest.raises(ConflictError):
        answers_by_interrupt(resume, [ONE, TWO])
