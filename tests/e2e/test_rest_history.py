"""What was said, what happened and what changed: the pages that a frontend shows of the past."""

from pathlib import Path
from typing import Any

import httpx
from support.gateway import Gateway
from support.model_server import Reply, ScriptedModel, call, calls, text

WORKSPACE = "/mnt/user-data/workspace"


def ask(question: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}]}


async def say(api: httpx.AsyncClient, question: str, thread: str = "t1", **more: Any) -> dict[str, Any]:
    answer = await api.post(f"/threads/{thread}/runs/wait", json={"input": ask(question), **more})
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


async def page(api: httpx.AsyncClient, thread: str = "t1", **query: Any) -> dict[str, Any]:
    answer = await api.get(f"/threads/{thread}/messages/page", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


def texts(rows: list[dict[str, Any]]) -> list[str]:
    return [row["content"]["content"] for row in rows if row["content"]["content"]]


async def run_ids(api: httpx.AsyncClient, thread: str = "t1") -> list[str]:
    return [run["run_id"] for run in (await api.get(f"/threads/{thread}/runs")).json()][::-1]


async def test_a_thread_is_read_page_by_page_backwards(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    looking = [call("ls", description="x", path=path) for path in (WORKSPACE, "/mnt/user-data/outputs")]
    model.on("two", calls(*looking), text("second"))
    model.on("one", text("first"))
    values = await say(api, "one")
    values = await say(api, "two")
    runs = await run_ids(api)

    whole = await page(api)
    parts, before = [], None
    while True:
        part = await page(api, limit=2, **({} if before is None else {"before_seq": before}))
        parts = part["data"] + parts
        before = part["next_before_seq"]
        if not part["has_more"]:
            break

    rows = whole["data"]
    assert [row["content"]["id"] for row in rows] == [message["id"] for message in values["messages"]]
    assert [row["seq"] for row in rows] == sorted({row["seq"] for row in rows})
    assert rows == parts
    assert (whole["has_more"], whole["next_before_seq"]) == (False, None)
    assert [row["run_id"] for row in rows] == [runs[0]] * 2 + [runs[1]] * 5
    assert rows[-1]["content"]["additional_kwargs"]["turn_duration"] >= 0
    assert "turn_duration" not in rows[3]["content"]["additional_kwargs"]
    assert {row["event_type"] for row in rows} == {"llm.human.input", "llm.ai.response", "llm.tool.result"}
    assert rows[-1]["metadata"] == {"caller": "lead_agent"}
    legacy = (await api.get("/threads/t1/messages", params={"after_seq": rows[1]["seq"], "limit": 2})).json()
    assert legacy == rows[2:4]
    of_run = (await api.get(f"/threads/t1/runs/{runs[0]}/messages")).json()
    assert of_run == {"data": rows[:2], "has_more": False}
    assert (await api.get(f"/runs/{runs[0]}/messages")).json() == of_run


async def test_what_was_summed_up_still_shows_and_what_was_taken_back_does_not(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.will_say(text("one"), text("two"), text("dos"), text("SUMMARY"), text("three"))
    await say(api, "first")
    last = (await say(api, "second"))["messages"][-1]["id"]
    prepared = (await api.post("/threads/t1/runs/regenerate/prepare", json={"message_id": last})).json()
    again = {key: prepared[key] for key in ("input", "checkpoint", "metadata")}
    await api.post("/threads/t1/runs/wait", json=again)
    compacted = await api.post("/threads/t1/compact", json={"keep": {"type": "messages", "value": 1}})
    await say(api, "third")

    shown = texts((await page(api))["data"])
    state = (await api.get("/threads/t1/state")).json()["values"]["messages"]

    assert compacted.json()["compacted"] is True
    assert len(state) < len(shown)
    assert shown == ["first", "one", "second", "dos", "third", "three"]


async def test_messages_that_were_removed_by_hand_are_gone(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.on("one", text("first"))
    said = await say(api, "one")
    gone = {"type": "remove", "id": said["messages"][-1]["id"], "content": ""}
    added = {"type": "human", "content": "by hand", "id": "h1"}
    await api.post("/threads/t1/state", json={"values": {"messages": [gone, added]}})

    rows = (await page(api))["data"]

    assert texts(rows) == ["one", "by hand"]
    assert rows[-1]["run_id"] is None


async def test_a_fork_a_copy_and_a_pruned_thread_have_their_past(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.on("two", text("second"))
    model.on("one", text("first"))
    first = (await say(api, "one"))["messages"][-1]["id"]
    await say(api, "two")
    fork = (await api.post("/threads/t1/branches", json={"message_id": first})).json()["thread_id"]
    copy = (await api.post("/threads/t1/copy")).json()["thread_id"]
    await api.post("/threads/prune", json={"thread_ids": ["t1"], "strategy": "keep_latest"})

    assert texts((await page(api, fork))["data"]) == ["one", "first"]
    assert texts((await page(api, copy))["data"]) == ["one", "first", "two", "second"]
    assert texts((await page(api))["data"])[-2:] == ["two", "second"]
    assert (await page(api, copy, before_seq=1))["data"] == []


async def test_pages_refuse_what_they_cannot_do(api: httpx.AsyncClient) -> None:
    await api.post("/threads", json={"thread_id": "t1"})

    assert (await page(api))["data"] == []
    for query in ("after_seq=5", "limit=0", "limit=201", "before_seq=x", "before_seq=-4"):
        assert (await api.get(f"/threads/t1/messages/page?{query}")).status_code == 422


async def test_a_thread_that_is_not_there_yet_has_no_past(api: httpx.AsyncClient) -> None:
    # Pages choose the id of a new thread, and ask before the first message makes it.
    shown = await api.get("/threads/t9/messages/page")
    states = [
        await api.post("/threads/t9/history", json={"limit": 1}),
        await api.get("/threads/t9/history"),
        await api.post("/langgraph/threads/t9/history", json={"limit": 1}),
    ]

    assert (shown.status_code, shown.json()) == (
        200,
        {"data": [], "has_more": False, "next_before_seq": None},
    )
    assert [(answer.status_code, answer.json()) for answer in states] == [(200, [])] * 3
    assert (await api.get("/threads/t9")).status_code == 404
    assert (await api.get("/runs/nobody/messages")).status_code == 404


async def test_feedback_stands_on_the_last_answer_of_its_run(
    api: httpx.AsyncClient, model: ScriptedModel
) -> None:
    model.on("one", text("first"))
    await say(api, "one")
    run = (await run_ids(api))[0]
    place = f"/threads/t1/runs/{run}/feedback"

    liked = (await api.put(place, json={"rating": 1})).json()
    changed = (await api.put(place, json={"rating": -1, "comment": "too short"})).json()
    more = (await api.post(place, json={"rating": 1, "message_id": "m"})).json()
    row = (await page(api))["data"][-1]

    assert set(liked) == {
        "feedback_id", "run_id", "thread_id", "user_id", "message_id", "rating", "comment", "created_at",
    }  # fmt: skip
    assert changed == {**liked, "rating": -1, "comment": "too short"}
    assert row["feedback"] == {"feedback_id": liked["feedback_id"], "rating": -1, "comment": "too short"}
    assert (await api.get(place)).json() == [changed, more] == (await api.get(f"/runs/{run}/feedback")).json()
    assert (await api.get(f"{place}/stats")).json() == {
        "run_id": run,
        "total": 2,
        "positive": 1,
        "negative": 1,
    }
    assert (await api.delete(f"{place}/{more['feedback_id']}")).json() == {"success": True}
    assert (await api.delete(place)).json() == {"success": True}
    assert (await api.delete(place)).status_code == 404
    assert (await api.put(place, json={"rating": 5})).status_code == 400
    assert (await api.put("/threads/t1/runs/nobody/feedback", json={"rating": 1})).status_code == 404
    assert "feedback" not in (await page(api))["data"][-1]
    assert (await api.post("/store/items/search", json={})).json() == {"items": []}


async def test_feedback_goes_with_its_thread(
    api: httpx.AsyncClient, model: ScriptedModel, gateway: Gateway
) -> None:
    model.on("one", text("first"))
    await say(api, "one")
    place = f"/threads/t1/runs/{(await run_ids(api))[0]}/feedback"
    await api.put(place, json={"rating": 1, "comment": "private"})

    await api.delete("/threads/t1")

    files = list((gateway.home / ".deer-flow").rglob("deerflow.db*"))
    assert files
    assert (await api.get(place)).status_code == 404


async def test_a_runs_events_are_rows_by_type_and_task(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    model.on("dig", call("ls", description="x", path=WORKSPACE), text("x" * 9000))
    model.will_say(
        call("task", description="dig here", prompt="dig", subagent_type="general-purpose"), text("done")
    )
    await say(api, "delegate", context={"subagent_enabled": True})
    run = (await run_ids(api))[0]
    place = f"/threads/t1/runs/{run}/events"

    rows = (await api.get(place)).json()
    steps = (await api.get(place, params={"event_types": "subagent.step"})).json()
    task = steps[0]["content"]["task_id"]
    mine = (
        await api.get(place, params={"event_types": "subagent.step,subagent.end", "task_id": task})
    ).json()
    rest = (await api.get(place, params={"after_seq": rows[2]["seq"], "limit": 3})).json()

    types = [row["event_type"] for row in rows]
    assert types[:2] == ["run.start", "llm.human.input"]
    assert types[-1] == "run.end"
    assert {"llm.ai.response", "llm.tool.result", "subagent.start", "subagent.end"} <= set(types)
    assert [row["seq"] for row in rows] == sorted({row["seq"] for row in rows})
    assert [(step["content"]["kind"], step["category"]) for step in steps] == [
        ("ai", "subagent"),
        ("tool", "subagent"),
        ("ai", "subagent"),
    ]
    assert steps[0]["content"]["tool_calls"][0]["name"] == "ls"
    assert steps[1]["content"]["tool_name"] == "ls"
    assert (len(steps[2]["content"]["text"]), steps[2]["content"]["truncated"]) == (8192, True)
    assert mine[:-1] == steps
    assert (mine[-1]["content"]["task_id"], mine[-1]["content"]["status"]) == (task, "completed")
    assert rest == rows[3:6]
    assert (await api.get(place, params={"task_id": "nobody"})).json() == []
    assert (await api.get(place, params={"limit": 2001})).status_code == 422
    assert (await api.get("/threads/t1/runs/nobody/events")).status_code == 404


def write(name: str, content: str) -> Any:
    return call("write_file", description="w", path=f"{WORKSPACE}/{name}", content=content)


def _changed_meanwhile(files: Path) -> Reply:
    (files / "b.txt").unlink()
    (files / "pic.bin").write_bytes(b"\x00\xff")
    (files / "link").symlink_to("/etc/passwd")
    return text("ok")


async def test_what_a_run_did_to_the_files_is_told_with_its_lines(
    api: httpx.AsyncClient, model: ScriptedModel, gateway: Gateway
) -> None:
    model.on("talk", text("nothing done"))
    model.on("first", write("a.txt", "one\ntwo\n"), write("b.txt", "gone"), text("ok"))
    model.on(
        "second",
        call("read_file", description="r", path=f"{WORKSPACE}/a.txt"),
        call("str_replace", description="s", path=f"{WORKSPACE}/a.txt", old_str="two", new_str="2\nthree"),
        lambda _: _changed_meanwhile(files),
    )
    files = gateway.home / ".deer-flow/users/default/threads/t1/user-data/workspace"
    for question in ("first", "second", "talk"):
        await say(api, question)
    (files / "a.txt").write_text("by hand, after the runs")
    (files / "mine.txt").write_text("mine")
    first, second, talk = await run_ids(api)

    async def changes(run: str, query: str = "?include_files=true&include_diff=true") -> dict[str, Any]:
        answer = await api.get(f"/threads/t1/runs/{run}/workspace-changes{query}")
        return answer.json()  # type: ignore[no-any-return]

    made, changed, none = await changes(first), await changes(second), await changes(talk)

    assert set(made) == {"available", "version", "summary", "files", "limits"}
    assert made["summary"] == {
        "created": 2,
        "modified": 0,
        "deleted": 0,
        "symlink_created": 0,
        "additions": 3,
        "deletions": 0,
        "truncated": False,
    }
    assert [file["path"] for file in made["files"]] == [f"{WORKSPACE}/a.txt", f"{WORKSPACE}/b.txt"]
    by_name = {file["path"].rpartition("/")[2]: file for file in changed["files"]}
    assert {name: file["status"] for name, file in by_name.items()} == {
        "a.txt": "modified",
        "b.txt": "deleted",
        "link": "created",
        "pic.bin": "created",
    }
    assert by_name["a.txt"]["diff"].splitlines()[2:] == ["@@ -1,2 +1,3 @@", " one", "-two", "+2", "+three"]
    assert (by_name["pic.bin"]["binary"], by_name["pic.bin"]["diff_unavailable_reason"]) == (True, "binary")
    assert changed["summary"]["symlink_created"] == 1
    assert set(by_name["a.txt"]) == {
        "path", "root", "status", "binary", "sensitive", "size_before", "size_after", "sha256_before",
        "sha256_after", "diff", "diff_truncated", "diff_unavailable_reason", "additions", "deletions",
    }  # fmt: skip
    assert (by_name["a.txt"]["root"], by_name["a.txt"]["size_before"]) == ("workspace", 8)
    assert "root:" not in str(changed)
    assert none["available"] is False
    assert (await changes(first, ""))["files"] == []
    assert (await changes(first, "?include_files=1"))["files"][0]["diff"] == ""
