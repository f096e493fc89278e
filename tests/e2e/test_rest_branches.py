"""Forks of threads, answers that are given again, and questions that are asked in other words."""

import threading
from pathlib import Path
from typing import Any

import httpx
from support.gateway import Gateway, parse_sse, running_gateway
from support.model_server import ScriptedModel, call, text

NOTE = "/mnt/user-data/workspace/note.txt"


def ask(question: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}]}


async def say(api: httpx.AsyncClient, question: str, thread: str = "t1", **more: Any) -> dict[str, Any]:
    answer = await api.post(f"/threads/{thread}/runs/wait", json={"input": ask(question), **more})
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


def words(values: dict[str, Any]) -> list[str]:
    return [message["content"] for message in values["messages"] if message["content"]]


async def values_of(api: httpx.AsyncClient, thread: str) -> dict[str, Any]:
    return (await api.get(f"/threads/{thread}/state")).json()["values"]  # type: ignore[no-any-return]


def write(content: str) -> Any:
    return call("write_file", description="w", path=NOTE, content=content)


def add(content: str) -> Any:
    return call("write_file", description="w", path=NOTE, content=f"+{content}", append=True)


def note_of(gateway: Gateway, thread: str) -> str:
    threads = gateway.home / ".deer-flow/users/default/threads"
    return (threads / thread / "user-data/workspace/note.txt").read_text()


async def test_a_fork_has_the_conversation_and_the_files_of_then(
    api: httpx.AsyncClient, model: ScriptedModel, gateway: Gateway
) -> None:
    for word in ("one", "two", "three"):
        model.on(word, write(word), text(f"wrote {word}"))
    model.on("go on", text("gone on"))
    said = [await say(api, word) for word in ("one", "two", "three")]
    target = said[1]["messages"][-1]["id"]
    await api.patch("/threads/t1", json={"metadata": {"deerflow_pinned": True, "agent_name": "x"}})

    answer = await api.post("/threads/t1/branches", json={"message_id": target, "message_ids": [target]})

    fork = answer.json()
    assert answer.status_code == 200
    assert set(fork) == {
        "thread_id",
        "parent_thread_id",
        "parent_checkpoint_id",
        "branched_from_message_id",
        "workspace_clone_mode",
        "history_seed_mode",
    }
    assert (fork["parent_thread_id"], fork["branched_from_message_id"]) == ("t1", target)
    assert fork["workspace_clone_mode"] == "as_of_message"
    new = fork["thread_id"]
    values = await values_of(api, new)
    assert [m["id"] for m in values["messages"]] == [m["id"] for m in said[1]["messages"]]
    assert (note_of(gateway, new), note_of(gateway, "t1")) == ("two", "three")
    thread = (await api.get(f"/threads/{new}")).json()
    assert (thread["metadata"]["branch_parent_thread_id"], thread["metadata"]["agent_name"]) == ("t1", "x")
    assert "deerflow_pinned" not in thread["metadata"]
    assert (thread["status"], thread["values"]["title"]) == ("idle", "one")
    history = (await api.post(f"/threads/{new}/history", json={"limit": 100})).json()
    assert max(len(state["values"].get("messages", [])) for state in history) == len(values["messages"])
    await say(api, "go on", thread=new)
    assert words(await values_of(api, new))[-2:] == ["go on", "gone on"]
    assert words(await values_of(api, "t1")) == words(said[2])


async def test_a_fork_answers_for_the_runs_whose_messages_it_has(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    for word in ("one", "two"):
        model.on(word, write(word), text(f"wrote {word}"))
    said = [await say(api, word) for word in ("one", "two")]
    made = await api.post("/threads/t1/branches", json={"message_id": said[0]["messages"][-1]["id"]})
    fork = f"/threads/{made.json()['thread_id']}"
    copy = f"/threads/{(await api.post('/threads/t1/copy')).json()['thread_id']}"
    later, run = [each["run_id"] for each in (await api.get("/threads/t1/runs")).json()]
    rows = (await api.get(f"{fork}/messages/page")).json()["data"]
    assert {row["run_id"] for row in rows} == {run}

    async def changes(thread: str, run_id: str) -> httpx.Response:
        return await api.get(f"{thread}/runs/{run_id}/workspace-changes", params={"include_files": True})

    for thread in (fork, copy):
        assert (await changes(thread, run)).json() == (await changes("/threads/t1", run)).json()
        events = (await api.get(f"{thread}/runs/{run}/events")).json()
        assert events == (await api.get(f"/threads/t1/runs/{run}/events")).json() != []
        word = await api.put(f"{thread}/runs/{run}/feedback", json={"rating": 1, "comment": "good"})
        assert (word.status_code, word.json()["run_id"]) == (200, run)
        assert len((await api.get(f"{thread}/runs/{run}/messages")).json()["data"]) == len(rows)
    assert (await changes(fork, run)).json()["summary"]["created"] == 1
    assert (await api.get(f"{fork}/messages/page")).json()["data"][-1]["feedback"]["comment"] == "good"
    assert (await api.get(f"/threads/t1/runs/{run}/feedback")).json() == []
    for path in ("workspace-changes", "events", "feedback", "messages"):
        assert (await api.get(f"{fork}/runs/{later}/{path}")).status_code == 404

    await api.delete("/threads/t1")
    gone = await changes(fork, run)
    assert (gone.status_code, gone.json()["available"]) == (200, False)
    assert (await api.get(f"{fork}/runs/{run}/events")).json() == []
    assert (await api.delete(f"{fork}/runs/{run}/feedback")).status_code == 200


async def test_a_fork_at_a_question_waits_for_the_answer(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    question = call("ask_clarification", question="Which?", clarification_type="missing_info")
    model.will_say(question, text("All of them."))
    asked = await say(api, "tell me")
    answered = await say(api, "all")

    fork, later = [
        (await api.post("/threads/t1/branches", json={"message_id": said["messages"][-1]["id"]})).json()
        for said in (asked, answered)
    ]

    assert (await api.get(f"/threads/{fork['thread_id']}")).json()["waits_for_answer"] is True
    assert (await api.get(f"/threads/{later['thread_id']}")).json()["waits_for_answer"] is False


async def test_a_fork_in_the_middle_of_a_turn_can_go_on_from_there(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.on("one", write("one"), text("wrote one"))
    said = await say(api, "one")
    calling = said["messages"][1]["id"]

    at_call = (await api.post("/threads/t1/branches", json={"message_id": calling})).json()["thread_id"]
    at_question = (
        await api.post(
            "/threads/t1/branches", json={"message_id": said["messages"][0]["id"], "title": "Again"}
        )
    ).json()["thread_id"]

    assert [m["type"] for m in (await values_of(api, at_call))["messages"]] == ["human", "ai"]
    went_on = (await api.post(f"/threads/{at_call}/runs/wait", json={"input": None})).json()
    assert words(went_on)[-1] == "wrote one"
    assert words(await values_of(api, at_question)) == ["one"]
    assert (await api.get(f"/threads/{at_question}")).json()["values"]["title"] == "Again"


async def test_a_fork_says_when_the_files_of_then_are_not_kept(tmp_path: Path, model: ScriptedModel) -> None:
    for word in ("one", "two"):
        model.on(word, write(word * 100), text(f"wrote {word}"))
    with running_gateway(tmp_path, model.base_url, runs={"snapshot_max_bytes": 10}) as gateway:
        async with gateway.client() as api:
            first = (await say(api, "one"))["messages"][-1]["id"]
            last = (await say(api, "two"))["messages"][-1]["id"]

            old = (await api.post("/threads/t1/branches", json={"message_id": first})).json()
            new = (await api.post("/threads/t1/branches", json={"message_id": last})).json()

        assert old["workspace_clone_mode"] == "current_thread_best_effort"
        assert new["workspace_clone_mode"] == "as_of_message"
        assert note_of(gateway, old["thread_id"]) == "two" * 100


async def test_an_answer_is_given_again_by_posting_back_what_was_prepared(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(text("one"), text("two"), text("dos"))
    await say(api, "first")
    before = await say(api, "second")
    last = before["messages"][-1]

    prepared = await api.post("/threads/t1/runs/regenerate/prepare", json={"message_id": last["id"]})
    body = prepared.json()
    streamed = await api.post(
        "/threads/t1/runs/stream",
        json={
            "assistant_id": "lead_agent",
            "input": body["input"],
            "checkpoint": body["checkpoint"],
            "metadata": body["metadata"],
            "stream_mode": ["values"],
        },
    )

    assert prepared.status_code == 200
    assert set(body) == {"input", "checkpoint", "metadata", "target_run_id", "workspace_restore_mode"}
    assert body["workspace_restore_mode"] == "as_of_message"
    assert set(body["checkpoint"]) == {"checkpoint_ns", "checkpoint_id", "checkpoint_map"}
    runs = (await api.get("/threads/t1/runs")).json()
    assert body["target_run_id"] == runs[1]["run_id"] == body["metadata"]["regenerate_from_run_id"]
    assert runs[0]["metadata"]["regenerate_from_message_id"] == last["id"]
    final = [data for event, data, _ in parse_sse(streamed.text) if event == "values"][-1]
    assert words(final) == ["first", "one", "second", "dos"]
    assert final["messages"][2]["id"] == before["messages"][2]["id"]


async def prepared(api: httpx.AsyncClient, values: dict[str, Any], index: int = -1) -> dict[str, Any]:
    body = {"message_id": values["messages"][index]["id"]}
    answer = await api.post("/threads/t1/runs/regenerate/prepare", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


def as_run(body: dict[str, Any]) -> dict[str, Any]:
    return {key: body[key] for key in ("input", "checkpoint", "metadata")}


async def test_an_answer_that_is_given_again_finds_the_files_of_its_question(
    api: httpx.AsyncClient, model: ScriptedModel, gateway: Gateway
) -> None:
    extra = call("write_file", description="w", path=NOTE.replace("note", "extra"), content="x")
    model.will_say(write("one"), text("1"), write("two"), extra, text("2"))
    model.will_say(add("again"), text("2b"), add("third"), text("2c"))
    await say(api, "first")
    second = await say(api, "second")
    workspace = gateway.home / ".deer-flow/users/default/threads/t1/user-data/workspace"

    again = await api.post("/threads/t1/runs/stream", json=as_run(await prepared(api, second)))
    note, files = note_of(gateway, "t1"), sorted(path.name for path in workspace.iterdir())
    values = await values_of(api, "t1")
    await api.post("/threads/t1/runs/wait", json=as_run(await prepared(api, values)))

    assert (note, files) == ("one+again", ["note.txt"])
    told = [data for event, data, _ in parse_sse(again.text) if event == "custom"]
    assert not told  # the reader asked for values only
    assert note_of(gateway, "t1") == "one+third"
    rows = (await api.get("/threads/t1/runs")).json()
    log = parse_sse((await api.get(f"/threads/t1/runs/{rows[1]['run_id']}/stream?stream_mode=custom")).text)
    told = [data for event, data, _ in log if event == "custom"]
    assert told == [{"type": "files_turned_back", "files_kept": None}]


async def test_undoing_an_answer_that_was_given_again_brings_the_files_back_that_it_found(
    api: httpx.AsyncClient, model: ScriptedModel, gateway: Gateway
) -> None:
    gate = threading.Event()
    model.will_say(write("one"), text("1"), add("again"), text("held").held(gate))
    first = await say(api, "first")

    body = {**as_run(await prepared(api, first)), "on_disconnect": "continue"}
    run = (await api.post("/threads/t1/runs", json=body)).json()["run_id"]
    await model.until(lambda model: len(model.requests) >= 4)
    held = note_of(gateway, "t1")
    cancelled = await api.post(f"/threads/t1/runs/{run}/cancel?wait=1&action=rollback")
    gate.set()

    assert (held, cancelled.status_code) == ("+again", 204)
    assert note_of(gateway, "t1") == "one"
    assert words(await values_of(api, "t1")) == words(first)


async def test_an_answer_that_is_given_again_says_when_the_files_of_then_are_not_kept(
    tmp_path: Path, model: ScriptedModel
) -> None:
    model.will_say(write("one" * 100), text("1"), add("two"), text("2"), text("3"))
    with running_gateway(tmp_path, model.base_url, runs={"snapshot_max_bytes": 10}) as gateway:
        async with gateway.client() as api:
            await say(api, "first")
            second = await say(api, "second")

            body = await prepared(api, second)
            again = await api.post("/threads/t1/runs/stream", json={**as_run(body), "stream_mode": "custom"})

        told = [data for event, data, _ in parse_sse(again.text) if event == "custom"]
        assert body["workspace_restore_mode"] == "current_thread_best_effort"
        assert [event["type"] for event in told] == ["files_turned_back"]
        assert "not kept any more" in told[0]["files_kept"]
        assert note_of(gateway, "t1") == "one" * 100 + "+two"


async def test_a_fork_in_the_middle_of_a_run_has_the_files_from_before_it_or_says_so(
    api: httpx.AsyncClient, model: ScriptedModel, gateway: Gateway
) -> None:
    model.will_say(write("one"), text("1"), add("two"), add("three"), text("3"))
    await say(api, "first")
    second = (await say(api, "second"))["messages"]

    forks = [
        (await api.post("/threads/t1/branches", json={"message_id": message["id"]})).json()
        for message in second[-6:]
    ]

    told = [(note_of(gateway, fork["thread_id"]), fork["workspace_clone_mode"]) for fork in forks]
    of_then, of_now = "as_of_message", "current_thread_best_effort"
    assert [message["type"] for message in second[-6:]] == ["human", "ai", "tool", "ai", "tool", "ai"]
    assert told[:2] == [("one", of_then), ("one", of_then)]
    assert told[2:5] == [("one+two+three", of_now)] * 3
    assert told[5] == ("one+two+three", of_then)


async def test_the_first_answer_of_a_thread_is_given_again_too(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(text("one"), text("uno"), text("un"), text("eins"))
    for durability in ("async", "exit"):
        thread = f"t-{durability}"
        said = await say(api, "first", thread=thread, durability=durability)
        body = (
            await api.post(
                f"/threads/{thread}/runs/regenerate/prepare",
                json={"message_id": said["messages"][-1]["id"]},
            )
        ).json()
        assert words(await values_of(api, thread)) == words(said)  # preparing changes nothing

        again = await api.post(
            f"/threads/{thread}/runs/wait",
            json={"input": body["input"], "checkpoint": body["checkpoint"], "metadata": body["metadata"]},
        )

        assert len(words(again.json())) == 2
        assert words(again.json()) != words(said)


async def test_a_question_is_asked_in_other_words(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/deer.png"}}
    model.on("third", text("three"))
    model.on("other words", text("another answer"))
    model.on("second", text("two"))
    model.on("first", text("one"))
    await say(api, "first")
    question = {"role": "user", "content": [{"type": "text", "text": "second"}, picture], "id": "q2"}
    await api.post("/threads/t1/runs/wait", json={"input": {"messages": [question]}})
    said = await say(api, "third")

    body = (
        await api.post(
            "/threads/t1/runs/edit-regenerate/prepare",
            json={"human_message_id": "q2", "replacement_text": "in other words"},
        )
    ).json()
    again = await api.post(
        "/threads/t1/runs/wait",
        json={"input": body["input"], "checkpoint": body["checkpoint"], "metadata": body["metadata"]},
    )

    assert body["metadata"]["replay_kind"] == "edit"
    assert body["source_message_ids"] == [message["id"] for message in said["messages"][2:]]
    asked = body["input"]["messages"][0]
    assert asked["id"] == body["replacement_human_message_id"] != "q2"
    assert asked["content"] == [{"type": "text", "text": "in other words"}, picture]
    messages = again.json()["messages"]
    assert [message["content"] for message in messages[:2]] == ["first", "one"]
    assert messages[2]["id"] == asked["id"]
    assert [message["content"] for message in messages[3:]] == ["another answer"]


REFUSED: list[tuple[str, dict[str, Any], int]] = [
    ("branches", {"message_id": "nobody"}, 404),
    ("branches", {"message_id": ""}, 422),
    ("branches", {"message_id": "a", "title": "x" * 257}, 422),
    ("branches", {}, 422),
    ("runs/regenerate/prepare", {"message_id": "nobody"}, 404),
    ("runs/regenerate/prepare", {"message_id": "q1"}, 409),
    ("runs/edit-regenerate/prepare", {"human_message_id": "q1", "replacement_text": ""}, 422),
    ("runs/edit-regenerate/prepare", {"human_message_id": "nobody", "replacement_text": "x"}, 404),
]


async def test_requests_that_cannot_be_met_are_refused(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    model.on("first", text("one"))
    question = {"messages": [{"role": "user", "content": "first", "id": "q1"}]}
    await api.post("/threads/t1/runs/wait", json={"input": question})

    answers = [await api.post(f"/threads/t1/{path}", json=body) for path, body, _ in REFUSED]
    elsewhere = await api.post("/threads/nowhere/branches", json={"message_id": "q1"})

    assert [answer.status_code for answer in answers] == [status for *_, status in REFUSED]
    assert elsewhere.status_code == 404
    assert (await api.post("/threads/count", json={})).json() == 1


async def test_a_busy_thread_is_not_forked(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    gate = threading.Event()
    model.on("slow", text("late").held(gate))
    model.on("first", text("one"))
    first = (await say(api, "first"))["messages"][-1]["id"]
    run = (await api.post("/threads/t1/runs", json={"input": ask("slow")})).json()["run_id"]

    fork = await api.post("/threads/t1/branches", json={"message_id": first})
    again = await api.post("/threads/t1/runs/regenerate/prepare", json={"message_id": first})
    gate.set()
    await api.get(f"/threads/t1/runs/{run}/join")

    assert (fork.status_code, again.status_code) == (409, 409)


async def test_a_pruned_past_is_said_to_be_gone(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    model.on("first", text("one"))
    model.on("second", text("two"))
    first = (await say(api, "first"))["messages"][-1]["id"]
    await say(api, "second")
    await api.post("/threads/prune", json={"thread_ids": ["t1"], "strategy": "keep_latest"})

    answer = await api.post("/threads/t1/runs/regenerate/prepare", json={"message_id": first})
    fork = await api.post("/threads/t1/branches", json={"message_id": first})

    assert answer.status_code in (200, 409)
    assert fork.status_code == 200


async def test_a_title_that_people_gave_outlives_a_turn_that_is_taken_again(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(*(text(f"answer {number}") for number in range(5)))
    await say(api, "first")
    first = (await say(api, "second"))["messages"][0]
    edit = {"human_message_id": first["id"], "replacement_text": "changed"}

    await _again(api, "edit-regenerate", edit)
    assert await _titles(api) == ["changed", "changed"]  # nobody had named it
    changed = (await values_of(api, "t1"))["messages"]
    await api.post("/threads/t1/state", json={"values": {"title": "Mine"}})
    await _again(api, "regenerate", {"message_id": changed[-1]["id"]})
    assert await _titles(api) == ["Mine", "Mine"]
    again = (await values_of(api, "t1"))["messages"]
    await _again(api, "edit-regenerate", {"human_message_id": again[0]["id"], "replacement_text": "x"})

    assert await _titles(api) == ["Mine", "Mine"]
    assert words(await values_of(api, "t1"))[0] == [{"type": "text", "text": "x"}]


async def test_a_title_that_people_gave_outlives_whatever_goes_on_from_a_past_state(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(*(text(f"answer {number}") for number in range(9)))
    said = await say(api, "first")
    past = (await api.post("/threads/t1/history", json={"limit": 20})).json()
    untitled = next(state for state in past if state["next"] == ["TurnStartMiddleware.before_agent"])
    asking = next(state for state in past if state["next"] == ["model"])
    assert ("title" in untitled["values"], asking["values"]["title"]) == (False, "first")

    update = {"messages": [{"type": "human", "content": "again", "id": "q"}]}
    # Nobody has named it: what goes on has the title of what it goes on from.
    checkpoint = {"checkpoint_id": untitled["checkpoint_id"]}
    await api.post("/threads/t1/runs/wait", json={"input": None, "checkpoint": checkpoint})
    assert await _titles(api) == ["first", "first"]
    await api.post("/threads/t1/state", json={"values": {"title": "Mine"}})
    for state in (untitled, asking):
        checkpoint = {"checkpoint_id": state["checkpoint_id"]}
        for begin in ({"input": None}, {"command": {"update": update}}, {"command": {"goto": "model"}}):
            answer = await api.post("/threads/t1/runs/wait", json={**begin, "checkpoint": checkpoint})
            assert answer.status_code == 200, answer.text
            assert await _titles(api) == ["Mine", "Mine"], (begin, state["next"])
        await api.post("/threads/t1/state", json={"values": update, "checkpoint": checkpoint})
        assert await _titles(api) == ["Mine", "Mine"]

    await api.post("/threads/t1/state", json={"values": {}, "checkpoint": checkpoint, "as_node": "model"})
    fork = await api.post("/threads/t1/branches", json={"message_id": said["messages"][0]["id"]})
    forked = fork.json()["thread_id"]
    assert (await values_of(api, forked))["title"] == "Mine"
    assert (await api.get(f"/threads/{forked}")).json()["values"]["title"] == "Mine"


async def _again(api: httpx.AsyncClient, kind: str, body: dict[str, str]) -> None:
    prepared = await api.post(f"/threads/t1/runs/{kind}/prepare", json=body)
    parts = {key: prepared.json()[key] for key in ("input", "checkpoint", "metadata")}
    assert (await api.post("/threads/t1/runs/wait", json=parts)).status_code == 200


async def _titles(api: httpx.AsyncClient) -> list[str]:
    """Return a thread's title as the list shows it, and as its state does."""
    select = {"select": ["thread_id", "values"]}
    (listed,) = (await api.post("/threads/search", json=select)).json()
    return [listed["values"]["title"], (await values_of(api, "t1"))["title"]]
