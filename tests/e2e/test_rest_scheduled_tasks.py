"""The tasks of DeerFlow's own page: made, paused, triggered, run on time, listed with what came of them."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from support.gateway import running_gateway
from support.model_server import ScriptedModel, text
from support.waiting import until

FIELDS = {
    "id", "thread_id", "context_mode", "assistant_id", "title", "prompt", "schedule_type", "schedule_spec",
    "timezone", "status", "next_run_at", "last_run_at", "last_run_id", "last_thread_id", "last_error",
    "run_count", "created_at", "updated_at",
}  # fmt: skip
NIGHTLY: dict[str, Any] = {
    "title": "Tidy up",
    "prompt": "tick",
    "schedule_type": "cron",
    "schedule_spec": {"cron": "0 3 * * *"},
    "timezone": "Europe/Berlin",
}


async def runs_of(api: httpx.AsyncClient, task: str, least: int, **wanted: str) -> list[dict[str, Any]]:
    async def look() -> list[dict[str, Any]] | None:
        runs: list[dict[str, Any]] = (await api.get(f"/scheduled-tasks/{task}/runs")).json()
        fitting = [run for run in runs if wanted.items() <= run.items()]
        return fitting if len(fitting) >= least else None

    found: list[dict[str, Any]] = await until(look)  # a run that starts by itself has no event
    return found


async def test_a_task_lives_through_its_whole_life(api: httpx.AsyncClient, model: ScriptedModel) -> None:
    model.on("tick", text("tock"))
    made = (await api.post("/scheduled-tasks", json=NIGHTLY)).json()
    place = f"/scheduled-tasks/{made['id']}"

    paused = (await api.post(f"{place}/pause")).json()
    resumed = (await api.post(f"{place}/resume")).json()
    changes = {"title": "Tidier", "schedule_spec": {"cron": "0 4 * * *"}, "timezone": "UTC"}
    changed = (await api.patch(place, json=changes)).json()
    triggered = (await api.post(f"{place}/trigger")).json()
    run = (await runs_of(api, made["id"], 1, status="success"))[0]
    listed = (await api.get("/scheduled-tasks")).json()

    assert set(made) == FIELDS
    assert (made["status"], made["context_mode"], made["prompt"]) == (
        "enabled",
        "fresh_thread_per_run",
        "tick",
    )
    assert (paused["status"], paused["next_run_at"], resumed["status"]) == ("paused", None, "enabled")
    assert (changed["title"], changed["schedule_spec"]) == ("Tidier", {"cron": "0 4 * * *"})
    assert datetime.fromisoformat(changed["next_run_at"]).hour == 4
    assert (triggered["id"], triggered["triggered"]) == (made["id"], True)
    assert (run["trigger"], run["task_id"], run["thread_id"]) == (
        "manual",
        made["id"],
        triggered["thread_id"],
    )
    assert (listed[0]["run_count"], listed[0]["last_run_id"]) == (1, run["run_id"])
    assert (await api.get(f"/threads/{run['thread_id']}/runs/{run['run_id']}")).json()["status"] == "success"
    assert (await api.post("/runs/crons/count", json={})).json() == 0
    assert (await api.delete(place)).json() == {"id": made["id"], "deleted": True}
    assert (await api.get(place)).status_code == 404
    assert (await api.get("/scheduled-tasks")).json() == []


async def test_tasks_run_on_time_once_or_again_and_leave_out_a_busy_thread(
    tmp_path: Path, model: ScriptedModel
) -> None:
    gate = threading.Event()
    model.on("slow", text("late").held(gate))
    model.on("tick", text("tock"))
    with running_gateway(tmp_path, model.base_url, scheduler={"min_once_delay_seconds": 1}) as gateway:
        async with gateway.client() as api:
            for seconds in (1.5, 5, 20):  # later where the machine is so slow that it is too near
                at = datetime.now(UTC) + timedelta(seconds=seconds)
                once = {**NIGHTLY, "schedule_type": "once", "schedule_spec": {"run_at": at.isoformat()}}
                made = await api.post("/scheduled-tasks", json=once)
                if made.is_success:
                    break
            single = made.json()
            await api.post("/threads", json={"thread_id": "t1"})
            again = {
                **NIGHTLY,
                "prompt": "slow",
                "schedule_spec": {"cron": "* * * * * *"},
                "context_mode": "reuse_thread",
                "thread_id": "t1",
            }
            often = (await api.post("/scheduled-tasks", json=again)).json()

            await runs_of(api, single["id"], 1, status="success", trigger="scheduled")
            skipped = await runs_of(api, often["id"], 1, status="skipped")
            busy = await api.post(f"/scheduled-tasks/{often['id']}/trigger")
            of_thread = (await api.get("/threads/t1/scheduled-tasks")).json()
            await api.post(f"/scheduled-tasks/{often['id']}/pause")
            gate.set()
            done = (await api.get(f"/scheduled-tasks/{single['id']}")).json()
            await runs_of(api, often["id"], 1, status="success")

    assert (done["status"], done["next_run_at"], done["run_count"]) == ("completed", None, 1)
    assert (skipped[0]["run_id"], "busy" in skipped[0]["error"]) == (None, True)
    assert busy.status_code == 409
    assert [task["id"] for task in of_thread] == [often["id"]]


async def test_tasks_that_mean_nothing_are_refused(api: httpx.AsyncClient) -> None:
    near = (datetime.now(UTC) + timedelta(seconds=5)).isoformat()
    refused: list[tuple[dict[str, Any], int]] = [
        ({"schedule_spec": {}}, 422),
        ({"schedule_spec": {"cron": "often"}}, 422),
        ({"schedule_spec": {"cron": 5}}, 422),
        ({"timezone": "Nowhere/City"}, 422),
        ({"schedule_type": "once", "schedule_spec": {"run_at": near}}, 422),
        ({"schedule_type": "once", "schedule_spec": {"run_at": "soon"}}, 422),
        ({"schedule_type": "sometimes"}, 422),
        ({"title": ""}, 422),
        ({"prompt": ""}, 422),
        ({"context_mode": "reuse_thread"}, 422),
        ({"context_mode": "reuse_thread", "thread_id": "nowhere"}, 404),
        ({"thread_id": "../x"}, 422),
    ]

    answers = [await api.post("/scheduled-tasks", json={**NIGHTLY, **body}) for body, _ in refused]

    assert [answer.status_code for answer in answers] == [status for _, status in refused]
    for path in ("", "/pause", "/resume", "/trigger", "/runs"):
        method = "GET" if path in ("", "/runs") else "POST"
        assert (await api.request(method, f"/scheduled-tasks/nobody{path}")).status_code == 404
    assert (await api.get("/scheduled-tasks")).json() == []
