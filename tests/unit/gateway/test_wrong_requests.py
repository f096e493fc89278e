"""A wrong request is answered with the right status, and with the location, the value and what to do."""

from typing import Any

import httpx
import pytest
from support.model_server import ScriptedModel, text

THREAD = "wrong-requests"
RUNS = f"/threads/{THREAD}/runs"
ASK = {"messages": [{"role": "user", "content": "hi"}]}
HISTORY, STATE = f"/threads/{THREAD}/history", f"/threads/{THREAD}/state"
JSON = {"content-type": "application/json"}
TEXT = {"content-type": "text/plain"}
MISSING = "0198c0de-0000-7000-8000-000000000000"


def run(**more: Any) -> dict[str, Any]:
    return {"json": {"input": ASK, **more}}


CASES: list[tuple[str, str, dict[str, Any], int, tuple[str, ...]]] = [
    ("POST", RUNS, run(assistant_id="nobody"), 404, ("assistant 'nobody'", "POST /assistants/search")),
    ("POST", RUNS, {"json": {"input": "hello"}}, 422, ("body input", "'hello'", "valid dictionary")),
    ("POST", RUNS, run(stream_mode=["values", "tokens"]), 422, ("stream_mode.1", "'tokens'", "'updates'")),
    ("POST", RUNS, run(multitask_strategy="queue"), 422, ("multitask_strategy", "'queue'", "'enqueue'")),
    ("POST", RUNS, run(colour="red"), 422, ("body colour", "unknown", "leave it out")),
    ("POST", RUNS, run(after_seconds=1e300), 422, ("after_seconds", "1e+300", "31622400")),
    ("POST", RUNS, run(config={"recursion_limit": -3}), 400, ("recursion_limit", "-3", "above 0")),
    ("POST", RUNS, run(context={"model_name": "gpt-99"}), 400, ("model", "'gpt-99'", "there are: scripted")),
    ("POST", RUNS, run(webhook="ftp://example.org"), 400, ("webhook", "ftp://example.org", "https://")),
    ("POST", RUNS, run(webhook="http://10.0.0.1/"), 400, ("webhook", "10.0.0.1", "webhook_allow_cidrs")),
    ("POST", RUNS, run(checkpoint_id=MISSING), 404, ("checkpoint", MISSING, "/history lists")),
    ("POST", RUNS, {"json": {"command": {"jump": "x"}}}, 400, ("command", "'jump'", "'resume'")),
    ("POST", RUNS, {"json": {"command": {"resume": "yes"}}}, 409, ("command.resume", "'yes'", THREAD)),
    ("POST", RUNS, {"json": {"input": {"colour": 1}}}, 400, ("input", "'colour'", "send input.messages")),
    (
        "POST",
        RUNS,
        {"json": {"input": {"messages": [*ASK["messages"], {"role": "wizard", "content": "?"}]}}},
        400,
        ("input.messages[1]", "'wizard'", "'user'"),
    ),
    (
        "POST",
        "/threads/brand-new/runs/wait",
        {"json": {"input": None}},
        400,
        ("input is null", "thread brand-new", "send input.messages"),
    ),
    ("POST", "/threads/no%20way/runs", run(), 400, ("thread id", "'no way'", "letters, digits")),
    ("POST", "/threads", {"json": {"thread_id": "a\0b"}}, 422, ("thread_id", "'a\\x00b'", "A-Za-z0-9")),
    ("GET", "/threads/nobody", {}, 404, ("thread 'nobody'", "POST /threads/search")),
    ("GET", f"{RUNS}/nothing", {}, 404, ("run 'nothing'", "GET /threads/{thread_id}/runs")),
    ("GET", f"{RUNS}?limit=-5", {}, 422, ("query limit", "'-5'", "greater than or equal to 1")),
    ("POST", "/threads/search", {"json": {"limit": 10**9}}, 422, ("body limit", "1000000000", "1000")),
    ("POST", "/threads/search", {"json": {"metadata": {"a\0b": 1}}}, 400, ("'a\\x00b'", "without null")),
    ("POST", HISTORY, {"json": {"before": "x"}}, 400, ("before", "'x'", "take one from")),
    ("GET", f"/threads/{THREAD}/messages/page?before_seq=x", {}, 422, ("before_seq", "'x'", "integer")),
    ("POST", STATE, {"json": {"values": {"hue": 1}}}, 400, ("values", "'hue'", "'title'")),
    ("POST", "/threads/prune", {"json": {"strategy": "all"}}, 422, ("'all'", "'keep_latest'")),
    ("POST", RUNS, {"content": '{"input": {', "headers": JSON}, 422, ("no JSON", "character 11")),
    ("POST", RUNS, {"content": b'{"input": "\xff"}', "headers": JSON}, 400, ("JSON", "0xff", "UTF-8")),
    ("POST", RUNS, {"content": '{"n": ' + "9" * 5000 + "}", "headers": JSON}, 400, ("JSON", "5000 digits")),
    ("POST", RUNS, {"content": "hi", "headers": TEXT}, 415, ("text/plain", "application/json")),
    ("POST", RUNS, {"content": b" " * (21 << 20), "headers": JSON}, 413, ("20,971,520 bytes", "/uploads")),
    (
        "POST",
        f"/threads/{THREAD}/uploads",
        {"content": b"x", "headers": {"content-type": "multipart/form-data"}},
        400,
        ("boundary", "'multipart/form-data'", "send a multipart form"),
    ),
    ("PUT", RUNS, {"json": {}}, 405, (f"PUT /api{RUNS}", "/openapi.json")),
]  # fmt: skip


@pytest.fixture
async def used(api: httpx.AsyncClient, scripted: ScriptedModel) -> httpx.AsyncClient:
    """Return the api, with a thread that has run once."""
    if (await api.get(f"/threads/{THREAD}")).status_code == 404:
        scripted.on("hi", text("Hello."))
        await api.post(f"{RUNS}/wait", json={"input": ASK})
    return api


@pytest.mark.parametrize(("method", "path", "options", "status", "words"), CASES)
async def test_the_answer_names_the_place_the_value_and_what_to_do(
    used: httpx.AsyncClient,
    method: str,
    path: str,
    options: dict[str, Any],
    status: int,
    words: tuple[str, ...],
) -> None:
    runs_before = len((await used.get(RUNS)).json())

    answer = await used.request(method, path, **options)

    body = answer.json()
    message = body.get("message") or body["detail"]
    assert (answer.status_code, [word for word in words if word not in message]) == (status, []), message
    assert len((await used.get(RUNS)).json()) == runs_before
