"""What was streamed of an answer that is stopped or fails stays, and its turn can be taken again."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.gateway import GatewayProcess, parse_sse
from support.model_server import Reply, ScriptedModel, call, calls, cut, raw_call, reasoning, status, text
from support.shared import fresh_model, shared_gateway

gateway = shared_gateway(
    sandbox={"use": "local", "allow_host_bash": True},
    guardrails={"rules": [{"tool": "bash", "action": "allow"}]},
    llm_call={"retry_max_attempts": 2, "retry_base_delay_ms": 1, "retry_cap_delay_ms": 1},
    circuit_breaker={"failure_threshold": 1000},
)
model = fresh_model
Message = dict[str, Any]
LISTED = {"select": ["thread_id", "values"]}


@pytest.fixture
def served(tmp_path: Path, model: ScriptedModel, request: pytest.FixtureRequest) -> Iterator[GatewayProcess]:
    """Return a server of its own; a parameter gives it settings of runs."""
    runs = getattr(request, "param", {})
    process = GatewayProcess(tmp_path, model.base_url, runs=runs).start()
    yield process
    process.kill()


def ask(question: str, **more: Any) -> dict[str, Any]:
    return {"input": {"messages": [{"role": "user", "content": question}]}, **more}


async def shown_until(
    api: httpx.AsyncClient, thread: str, body: dict[str, Any], word: str
) -> tuple[str, str]:
    """Start a run and read its stream until a word came; return the run's path and the answer's id."""
    body = {**body, "stream_mode": ["messages-tuple", "values"], "on_disconnect": "continue"}
    async with api.stream("POST", f"/threads/{thread}/runs/stream", json=body) as response:
        seen = ""
        async for line in response.aiter_lines():
            if line.startswith("data: [") and word in (seen := seen + line):
                chunk = json.loads(line.removeprefix("data: "))[0]
                return response.headers["content-location"].removeprefix("/api"), chunk["id"]
    raise AssertionError(f"{word} was never streamed")


async def stopped(api: httpx.AsyncClient, thread: str, answer: Reply, model: ScriptedModel, word: str) -> str:
    """Ask something, stop the answer once a word of it was shown, and return the answer's id."""
    model.will_say(answer)
    run, message_id = await shown_until(api, thread, ask("go"), word)
    assert (await api.post(f"{run}/cancel?wait=1")).status_code == 204
    replayed = parse_sse((await api.get(f"{run}/stream", headers={"Last-Event-ID": "-1"})).text)
    last = [data for kind, data, _ in replayed if kind == "values"][-1]["messages"][-1]
    assert (last["id"], last["additional_kwargs"]["ended"]) == (message_id, "stopped")
    return message_id


async def messages(api: httpx.AsyncClient, thread: str) -> list[Message]:
    """Return what a reload shows, of which state and page must say the same."""
    values = (await api.get(f"/threads/{thread}/state")).json()["values"]
    rows = (await api.get(f"/threads/{thread}/messages/page")).json()["data"]
    assert [row["content"]["id"] for row in rows] == [message["id"] for message in values["messages"]]
    return values["messages"]  # type: ignore[no-any-return]


async def again(
    api: httpx.AsyncClient, thread: str, message_id: str, words: str | None = None
) -> list[Message]:
    """Take a turn again as a frontend does, in other words if there are some."""
    kind, body = "regenerate", {"message_id": message_id}
    if words is not None:
        kind, body = "edit-regenerate", {"human_message_id": message_id, "replacement_text": words}
    prepared = await api.post(f"/threads/{thread}/runs/{kind}/prepare", json=body)
    assert prepared.status_code == 200, prepared.text
    parts = {key: prepared.json()[key] for key in ("input", "checkpoint", "metadata")}
    assert (await api.post(f"/threads/{thread}/runs/wait", json=parts)).status_code == 200
    return await messages(api, thread)


def words(found: list[Message]) -> list[str]:
    return [_text(message["content"]) for message in found]


def _text(content: str | list[dict[str, str]]) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


async def test_a_stopped_answer_stays_with_its_thoughts_and_is_given_again(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str, gate: threading.Event
) -> None:
    answer = reasoning("a hard one ") + text("Well, first " + "more " * 50).held(gate, after=6)
    message_id = await stopped(api, thread, answer, model, "first")

    question, kept = await messages(api, thread)
    assert (kept["id"], kept["type"], kept["tool_calls"]) == (message_id, "ai", [])
    assert kept["content"].startswith("Well, first")
    assert kept["additional_kwargs"] == {"reasoning_content": "a hard one ", "ended": "stopped"}
    model.will_say(text("done"))
    assert words(await again(api, thread, message_id)) == ["go", "done"]
    assert "assistant" not in [each["role"] for each in model.requests[-1].messages]
    model.will_say(text("other"))
    assert words(await again(api, thread, question["id"], "else")) == ["else", "other"]


async def test_the_model_sees_the_text_of_a_stopped_answer_in_the_next_turn(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str, gate: threading.Event
) -> None:
    answer = reasoning("hm") + text("Half an answer " + "more " * 50).held(gate, after=4)
    await stopped(api, thread, answer, model, "answer")
    model.will_say(text("yes"), text("from the start"))

    await api.post(f"/threads/{thread}/runs/wait", json=ask("and now?"))

    *_, seen, question = model.requests[-1].messages
    assert (seen["role"], question["role"]) == ("assistant", "user")
    assert seen["content"].startswith("Half an answer")
    assert "reasoning_content" not in seen
    assert words(await messages(api, thread))[-2:] == ["and now?", "yes"]


async def test_a_stopped_turn_goes_on_without_a_new_message(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str, gate: threading.Event
) -> None:
    await stopped(api, thread, text("Half an answer " + "more " * 50).held(gate, after=4), model, "answer")
    assert (await api.get(f"/threads/{thread}/state")).json()["next"] == ["model"]
    model.will_say(text("from the start"))

    await api.post(f"/threads/{thread}/runs/wait", json={"input": None})

    assert "assistant" not in [each["role"] for each in model.requests[-1].messages]
    assert words(await messages(api, thread))[-1] == "from the start"


async def test_a_stopped_run_without_an_input_keeps_what_it_streamed(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str, gate: threading.Event
) -> None:
    half = text("Half an answer " + "more " * 50).held(gate, after=4)
    first = await stopped(api, thread, half, model, "answer")
    model.will_say(text("Another answer " + "more " * 50).held(gate, after=4))
    run, second = await shown_until(api, thread, {"input": None}, "Another")
    await api.post(f"{run}/cancel?wait=1")

    _, *kept = await messages(api, thread)
    assert [each["id"] for each in kept] == [first, second]
    assert [each["additional_kwargs"]["ended"] for each in kept] == ["stopped", "stopped"]
    model.will_say(status(400, message="no"))
    await api.post(f"/threads/{thread}/runs/wait", json={"input": None})
    assert (await messages(api, thread))[-1]["additional_kwargs"]["deerflow_error_fallback"] is True


async def test_a_turn_that_is_taken_again_without_an_input_keeps_only_what_was_streamed_last(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str, gate: threading.Event
) -> None:
    model.will_say(text("old"), text("Half an answer " + "more " * 50).held(gate, after=4), text("new"))
    await api.post(f"/threads/{thread}/runs/wait", json=ask("go"))
    history = (await api.get(f"/threads/{thread}/history")).json()
    before = next(state["checkpoint"] for state in history if state["next"] == ["model"])
    again = {"input": None, "checkpoint": before}  # as LangGraph's clients do

    run, message_id = await shown_until(api, thread, again, "answer")
    await api.post(f"{run}/cancel?wait=1")
    found = await messages(api, thread)
    await api.post(f"/threads/{thread}/runs/wait", json=again)

    assert [each["id"] for each in found[1:]] == [message_id]
    assert words(await messages(api, thread)) == ["go", "new"]


async def test_half_a_tool_call_is_not_kept(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str, gate: threading.Event
) -> None:
    half = text("I write it now.") + raw_call(
        "write_file", '{"description": "w", "path": "/mnt/x", "content": "a'
    )
    await stopped(api, thread, half.held(gate, after=6), model, "now")

    kept = (await messages(api, thread))[-1]
    assert (kept["content"], kept["tool_calls"], kept["invalid_tool_calls"]) == ("I write it now.", [], [])


@pytest.mark.parametrize("is_edited", [False, True])
async def test_a_turn_that_was_stopped_before_its_first_word_is_taken_again(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str, gate: threading.Event, is_edited: bool
) -> None:
    model.will_say(text("late").held(gate))
    run = (await api.post(f"/threads/{thread}/runs", json=ask("go"))).json()["run_id"]
    await model.until(lambda scripted: bool(scripted.requests))
    await api.post(f"/threads/{thread}/runs/{run}/cancel?wait=1")
    (question,) = await messages(api, thread)
    model.will_say(text("done"))

    taken = await again(api, thread, question["id"], "else" if is_edited else None)

    assert words(taken) == ["else" if is_edited else "go", "done"]


async def test_an_answer_that_breaks_off_in_all_tries_stays_once(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str
) -> None:
    model.will_say(cut("A start that " + "more " * 20, after=5), cut("A start that " + "more " * 20, after=5))
    answer = await api.post(f"/threads/{thread}/runs/stream", json=ask("go"))
    error = next(data for kind, data, _ in parse_sse(answer.text) if kind == "error")

    question, kept, note = await messages(api, thread)
    assert (kept["additional_kwargs"]["ended"], kept["content"][:12]) == ("failed", "A start that")
    assert note["additional_kwargs"]["deerflow_error_fallback"] is True
    assert kept["additional_kwargs"]["end_reason"] == error["message"]
    model.will_say(text("done"))
    assert words(await again(api, thread, kept["id"])) == ["go", "done"]
    model.will_say(text("other"))
    assert words(await again(api, thread, question["id"], "else")) == ["else", "other"]


async def test_a_turn_that_failed_before_its_first_word_is_taken_again(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str
) -> None:
    model.will_say(status(400, message="no"))
    await api.post(f"/threads/{thread}/runs/stream", json=ask("go"))
    found = await messages(api, thread)
    model.will_say(text("done"))
    assert words(await again(api, thread, found[-1]["id"])) == ["go", "done"]


async def test_a_question_that_is_sent_again_stands_before_all_its_answers(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str
) -> None:
    model.will_say(text("hello"), status(400, message="no"), cut("A start " + "more " * 20, after=5))
    model.will_say(cut("A start " + "more " * 20, after=5), text("done"), text("other"))
    asked = {"input": {"messages": [{"type": "human", "content": "go", "id": f"question-{thread}"}]}}

    await api.post(f"/threads/{thread}/runs/wait", json=ask("hi"))
    for _ in range(3):  # as the page's "Try again" does
        await api.post(f"/threads/{thread}/runs/stream", json=asked)

    found = await messages(api, thread)
    assert [message["additional_kwargs"].get("ended") for message in found] == [None] * 3 + ["failed", None]
    assert [words(found)[place] for place in (0, 1, 2, -1)] == ["hi", "hello", "go", "done"]
    page = f"/threads/{thread}/messages/page?limit=2"
    newest = (await api.get(page)).json()
    older = (await api.get(f"{page}&before_seq={newest['next_before_seq']}")).json()
    listed = [row["content"]["id"] for row in [*older["data"], *newest["data"]]]
    assert listed == [message["id"] for message in found[1:]]
    assert words(await again(api, thread, found[-1]["id"])) == ["hi", "hello", "go", "other"]


@pytest.mark.parametrize("how", ["the same message", "a new message", "no message", "an earlier checkpoint"])
async def test_the_note_of_a_failed_answer_goes_once_its_question_is_answered(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str, gate: threading.Event, how: str
) -> None:
    asked = [{"type": "human", "content": "go", "id": f"question-{thread}"}]
    run = f"/threads/{thread}/runs/wait"
    model.will_say(status(400, message="one"), status(400, message="two"), status(400, message="three"))
    model.will_say(text("done"), text("and done"))
    await api.post(run, json=ask("another"))
    await api.post(run, json={"input": {"messages": asked}})
    before = (await api.get(f"/threads/{thread}/history")).json()
    repeated: dict[str, Any] = {"input": None}
    if how == "an earlier checkpoint":
        failing = (state for state in before if state["metadata"]["source"] == "loop")
        repeated["checkpoint"] = next(each["checkpoint"] for each in failing if each["next"] == ["model"])
    elif how != "no message":
        named = asked if how == "the same message" else [{"type": "human", "content": "go"}]
        repeated["input"] = {"messages": named}

    await api.post(run, json=repeated)
    failed = await messages(api, thread)
    await api.post(run, json=repeated)
    answered = await messages(api, thread)
    await api.post(run, json=ask("more"))

    sent = 3 if how == "a new message" else 1
    questions = ["another", "note: one", *["go"] * sent]
    assert [_said(each) for each in failed] == [*questions[: max(3, sent + 1)], "note: three"]
    assert [_said(each) for each in answered] == [*questions, "done"]
    assert [_said(each) for each in await messages(api, thread)][-3:] == ["done", "more", "and done"]
    (listed,) = (await api.post("/threads/search", json={**LISTED, "ids": [thread]})).json()
    assert "note: three" not in [_said(each) for each in listed["values"]["messages"]]
    history = (await api.get(f"/threads/{thread}/history?limit=100")).json()
    told = {_said(each) for state in history for each in state["values"].get("messages", ())}
    assert {"note: one", "note: two", "note: three"} <= told


def _said(message: Message) -> str:
    """Return the words of a message; of a failure note, what the provider said."""
    detail = message["additional_kwargs"].get("error_detail")
    return _text(message["content"]) if detail is None else f"note: {detail.rpartition(' ')[2].strip(')')}"


@pytest.mark.parametrize(
    ("question", "context", "words_of_it"),
    [
        (
            "go",
            {},
            ("**This answer failed.** The provider refused the request.", "send your message once more"),
        ),
        ("开始", {}, ("**这次回答失败了。** 提供商拒绝了这次请求。", "再次发送消息")),
        ("go", {"locale": "zh-CN"}, ("**这次回答失败了。**", "重新生成")),
        ("开始", {"locale": "en-US"}, ("**This answer failed.**", "regenerate this answer")),
    ],
)
async def test_a_failed_call_leaves_a_message_with_its_reason_and_a_way_on(
    api: httpx.AsyncClient,
    model: ScriptedModel,
    thread: str,
    question: str,
    context: dict[str, str],
    words_of_it: tuple[str, str],
) -> None:
    model.will_say(status(400, message="bad weather"), text("Now it works."))

    answer = await api.post(f"/threads/{thread}/runs/stream", json=ask(question, context=context))
    found = await messages(api, thread)
    run = (await api.get(f"/threads/{thread}/runs")).json()[0]
    await api.post(f"/threads/{thread}/runs/wait", json=ask("and now?"))

    events = parse_sse(answer.text)
    note = found[-1]
    shown = [data for kind, data, _ in events if kind == "values"][-1]["messages"][-1]
    marks = note["additional_kwargs"]
    assert (note["type"], shown, run["status"]) == ("ai", note, "error")
    assert all(part in note["content"] for part in (*words_of_it, "400: bad weather"))
    assert (marks["ended"], marks["error_type"], marks["error_reason"]) == (
        "failed",
        "ModelError",
        "request_refused",
    )
    assert "bad weather" not in str(model.requests[-1].messages), "no model takes it for an answer of its own"
    assert words(await messages(api, thread))[-1] == "Now it works."


async def test_a_newer_run_that_interrupts_leaves_what_was_streamed(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str, gate: threading.Event
) -> None:
    model.will_say(text("Half an answer " + "more " * 50).held(gate, after=4), text("yes"))
    await shown_until(api, thread, ask("go"), "answer")

    await api.post(f"/threads/{thread}/runs/wait", json=ask("no, this", multitask_strategy="interrupt"))

    found = await messages(api, thread)
    assert [message["type"] for message in found] == ["human", "ai", "human", "ai"]
    assert [message["additional_kwargs"].get("ended") for message in found] == [None, "stopped", None, None]


async def test_a_first_run_that_was_killed_keeps_what_it_streamed_once_it_is_stopped(
    served: GatewayProcess, model: ScriptedModel, gate: threading.Event
) -> None:
    model.will_say(text("Half an answer " + "more " * 50).held(gate, after=4))
    async with served.client() as api:
        run, message_id = await shown_until(api, "t1", ask("17*23 is what?"), "answer")
        model.will_say(text("late").held(gate))
        served.kill()
    served.start()
    async with served.client() as api:
        (listed,) = (await api.post("/threads/search", json=LISTED)).json()
        await model.until(lambda scripted: len(scripted.requests) == 2)
        await api.post(f"{run}/cancel?wait=1")
        found = await messages(api, "t1")
        model.will_say(text("391"))
        taken = await again(api, "t1", message_id)
        (later,) = (await api.post("/threads/search", json=LISTED)).json()

    assert listed["values"]["title"] == later["values"]["title"] == "17*23 is what?"
    assert [(message["id"], message["additional_kwargs"].get("ended")) for message in found[1:]] == [
        (message_id, "stopped")
    ]
    assert words(taken) == ["17*23 is what?", "391"]


@pytest.mark.parametrize("served", [{"max_attempts": 1}], indirect=True)
async def test_a_first_run_that_killed_its_server_keeps_what_it_streamed_when_it_is_given_up(
    served: GatewayProcess, model: ScriptedModel, gate: threading.Event
) -> None:
    model.will_say(text("Half an answer " + "more " * 50).held(gate, after=4))
    async with served.client() as api:
        run, message_id = await shown_until(api, "t1", ask("go"), "answer")
        served.kill()
    served.start()
    async with served.client() as api:
        await api.get(f"{run}/join")
        ended = (await api.get(run)).json()
        question, kept, note = await messages(api, "t1")
        model.will_say(text("done"), text("other"))
        taken = await again(api, "t1", note["id"])
        edited = await again(api, "t1", question["id"], "else")

    assert (ended["status"], ended["stop_reason"]) == ("error", "TooManyAttempts")
    assert (kept["id"], kept["additional_kwargs"]["ended"]) == (message_id, "failed")
    assert (words(taken), words(edited)) == (["go", "done"], ["else", "other"])


@pytest.mark.parametrize("served", [{"max_attempts": 1}], indirect=True)
async def test_a_resumed_run_that_killed_its_server_keeps_what_it_streamed_when_it_is_given_up(
    served: GatewayProcess, model: ScriptedModel, gate: threading.Event
) -> None:
    model.will_say(status(400, message="no"), text("Half an answer " + "more " * 50).held(gate, after=4))
    async with served.client() as api:
        await api.post("/threads/t1/runs/wait", json=ask("go"))
        run, message_id = await shown_until(api, "t1", {"input": None}, "answer")
        served.kill()
    served.start()
    async with served.client() as api:
        await api.get(f"{run}/join")
        kept, note = (await messages(api, "t1"))[-2:]
        model.will_say(text("done"))
        taken = await again(api, "t1", note["id"])

    assert (kept["id"], kept["additional_kwargs"]["ended"]) == (message_id, "failed")
    assert note["additional_kwargs"]["error_type"] == "TooManyAttempts"
    assert words(taken) == ["go", "done"]


async def test_a_stop_in_the_middle_of_a_tool_keeps_the_call_and_its_turn_is_taken_again(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str
) -> None:
    model.will_say(text("I look.") + call("bash", description="wait", command="echo on; sleep 60"))
    run, message_id = await shown_until(api, thread, ask("go"), "look")
    await model.until(lambda scripted: bool(scripted.requests))
    while (await api.get(f"/threads/{thread}/state")).json()["next"] != ["tools"]:
        pass
    await api.post(f"{run}/cancel?wait=1")

    _, calling = await messages(api, thread)
    assert (calling["id"], len(calling["tool_calls"])) == (message_id, 1)
    model.will_say(text("done"))
    assert words(await again(api, thread, message_id)) == ["go", "done"]


async def test_a_stop_beside_a_finished_tool_keeps_its_result(
    api: httpx.AsyncClient, model: ScriptedModel, thread: str
) -> None:
    quick = call("bash", description="quick", command="echo result $((40 + 2))")
    slow = call("bash", description="slow", command="echo again; sleep 60")
    model.will_say(calls(quick, slow))
    run, _ = await shown_until(api, thread, ask("go"), "result 42")
    await api.post(f"{run}/cancel?wait=1")

    _, calling, result = await messages(api, thread)
    assert (result["tool_call_id"], "result 42" in result["content"]) == (
        calling["tool_calls"][0]["id"],
        True,
    )
    assert (await api.get(f"/threads/{thread}/state")).json()["next"] == ["tools"]
    model.will_say(text("done"))
    await api.post(f"/threads/{thread}/runs/wait", json=ask("and?"))
    seen = [each["content"] for each in model.requests[-1].messages if each["role"] == "tool"]
    assert ["result 42" in seen[0], "interrupted" in seen[1]] == [True, True]
