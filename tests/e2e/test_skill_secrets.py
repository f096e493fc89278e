"""Secrets of skills: given once, used by the skill's commands, and seen nowhere."""

import base64
import json
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.documented import Documented
from support.gateway import GatewayProcess, client_of
from support.model_server import ScriptedModel, call, calls, text
from support.scene import Scene, Seen
from support.waiting import stored

VALUE = "wk-4f9!Q z'7\"q$X-0093"
FETCH = "/mnt/skills/public/weather/scripts/fetch.py"
SCRIPT = """\
import base64, os, sys
key = os.environ.get("WEATHER_KEY", "")
print("key:", key, "in Base64:", base64.b64encode(key.encode()).decode())
for letter in key:
    print(letter, end="", flush=True)
open("/mnt/user-data/workspace/kept.txt", "w").write(key)
sys.exit(f"failed with {key}" if "fail" in sys.argv else None)
"""
WEATHER = """\
---
name: weather
description: Tells the weather.
required-secrets: [WEATHER_KEY, {name: WEATHER_REGION, optional: true}]
---
Run scripts/fetch.py with the name of a town.
"""
SHY = """\
---
name: shy
description: Is only for people.
required-secrets: [SHY_KEY]
secrets-autonomous: false
allowed-tools: bash
---
Run scripts/show.sh and nothing else at all.
"""


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory, server: ScriptedModel) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("home")
    public = home / "skills" / "public"
    for name, content in {
        "weather/SKILL.md": WEATHER,
        "weather/scripts/fetch.py": SCRIPT,
        "shy/SKILL.md": SHY,
        "shy/scripts/show.sh": 'echo "[$SHY_KEY]"\n',
    }.items():
        (public / name).parent.mkdir(parents=True, exist_ok=True)
        (public / name).write_text(content)
    running = GatewayProcess(home, server.base_url, sandbox={"use": "isolated"}, log_level="debug").start()
    yield running
    running.stop()


@pytest.fixture
def scene(process: GatewayProcess, server: ScriptedModel) -> Scene:
    server.reset()
    return Scene(process, server)  # type: ignore[arg-type]


async def put(scene: Scene, skill: str, **secrets: Any) -> Any:
    async with scene.gateway.client() as api:
        return await api.put(f"/skills/{skill}/secrets", json={"secrets": secrets})


def outputs(seen: Seen) -> list[str]:
    return [result["content"].strip() for result in seen.results]


async def test_a_missing_secret_is_asked_for_and_nothing_runs(scene: Scene) -> None:
    scene.model.will_say(call("bash", command=f"python3 {FETCH} Oslo"), text("It needs a key."))

    by_slash = await scene.ask("/weather in Oslo")
    by_agent = await scene.ask("The weather in Oslo?")

    needed = "secrets that are not set: WEATHER_KEY."
    assert needed in by_slash.answer
    assert "deerflow skills secrets set weather NAME" in by_slash.answer
    assert needed in outputs(by_agent)[0]
    assert len(scene.model.requests) == 2


async def test_only_named_and_usable_secrets_are_taken(scene: Scene) -> None:
    wrong = await put(scene, "weather", OTHER="long-enough")
    short = await put(scene, "weather", WEATHER_KEY="12345")
    number = await put(scene, "weather", WEATHER_KEY=123456789)
    nowhere = await put(scene, "wether", WEATHER_KEY=VALUE)

    assert [answer.status_code for answer in (wrong, short, number, nowhere)] == [400, 400, 400, 404]
    assert "it names WEATHER_KEY, WEATHER_REGION" in wrong.json()["detail"]
    assert not any(value in str(answer.json()) for answer, value in ((short, "12345"), (number, "123456789")))


async def test_a_secret_reaches_the_skills_commands_and_is_seen_nowhere(
    scene: Scene, process: GatewayProcess
) -> None:
    saved = (await put(scene, "weather", WEATHER_KEY=VALUE)).json()
    scene.model.will_say(
        call("bash", command=f"python3 {FETCH} Oslo"),
        calls(
            call("bash", command=f"python3 {FETCH} fail"),
            call("bash", command="printenv | grep -c '^WEATHER'"),
            call(
                "python", code="import os; print(len(os.environ['WEATHER_KEY']), os.environ['WEATHER_KEY'])"
            ),
            call("bash", command='export KEPT="$WEATHER_KEY"; echo "$WEATHER_KEY"'),
        ),
        text("Rain."),
        calls(
            call("bash", command='echo "[$WEATHER_KEY][$KEPT]"'),
            call("read_file", path="/mnt/user-data/workspace/kept.txt"),
            call("grep", path="/mnt/user-data/workspace", pattern="wk-", literal=True),
        ),
        text("Still rain."),
    )

    seen = await scene.ask("/weather in Oslo")
    after = await scene.ask("Show me more.")

    assert saved == {
        "skill": "weather",
        "secrets": [
            {"name": "WEATHER_KEY", "optional": False, "set": True},
            {"name": "WEATHER_REGION", "optional": True, "set": False},
        ],
    }
    hidden = outputs(seen)[0].split("key: ")[1].split(" in Base64")[0]
    assert outputs(seen)[0].splitlines() == [f"key: {hidden} in Base64: {hidden}", hidden]
    assert f"failed with {hidden}" in outputs(seen)[1]
    assert outputs(seen)[2].startswith("0"), "a command that is not the skill's gets nothing"
    assert outputs(seen)[3] == f"{len(VALUE)} {hidden}"
    printed, read, found = outputs(after)[-3:]
    assert printed == "[][]", "the skill is not active any more"
    assert read.endswith(hidden)
    assert found.endswith(hidden)
    await seen_nowhere(scene, process, seen, after)


async def seen_nowhere(scene: Scene, process: GatewayProcess, *turns: Seen) -> None:
    """Check that the value is in no event, prompt, state, log or file of the server."""
    forms = [VALUE, json.dumps(VALUE)[1:-1], base64.b64encode(VALUE.encode()).decode()]
    places = {f"events {number}": repr(turn.events) for number, turn in enumerate(turns)}
    places |= {f"request {n}": json.dumps(one.body) for n, one in enumerate(scene.model.requests)}
    for path in ("/state", "/runs", "/messages", "/history?limit=100"):
        method = "POST" if path.startswith("/history") else "GET"
        answer = await scene.request(method, path, **({"json": {"limit": 100}} if method == "POST" else {}))
        assert answer.status_code == 200, answer.text
        places[path] = answer.text
    for run in (await scene.request("GET", "/runs")).json():
        logged = await scene.request("GET", f"/runs/{run['run_id']}/events?limit=500")
        assert logged.status_code == 200, logged.text
        places[run["run_id"]] = logged.text
    async with scene.gateway.client() as api:
        places["route"] = (await api.get("/skills/weather/secrets")).text
    workspaces = list((process.home / ".deer-flow").glob("users/*/threads/*/user-data/**/kept.txt"))
    for file in process.home.rglob("*"):
        if file.is_file() and file not in workspaces and "snapshots" not in file.parts:
            places[str(file)] = file.read_bytes().decode("utf-8", "replace")
    assert any(name.endswith(".log") for name in places)
    assert [name for name, content in places.items() if any(form in content for form in forms)] == []


async def test_a_secret_can_be_sent_with_one_run_and_is_stored_encrypted(
    scene: Scene, process: GatewayProcess
) -> None:
    scene.model.will_say(call("bash", command=f"python3 {FETCH} Oslo"), text("Rain."))
    async with scene.gateway.client() as api:
        await api.delete("/skills/weather/secrets")
        body = {"input": {"messages": [{"type": "human", "content": "go"}]}, "context": {"secrets": ["x"]}}
        refused = await api.post(f"/threads/{scene.thread}/runs/wait", json=body)

    seen = await scene.ask("/weather in Oslo", secrets={"WEATHER_KEY": VALUE})
    after = await scene.ask("/weather again")

    assert (refused.status_code, "an object with a text for each name" in refused.text) == (400, True)
    assert outputs(seen)[0].startswith("key: (hidden) in Base64: (hidden)")
    assert "needs secrets that are not set" in after.answer
    await seen_nowhere(scene, process, seen, after)


async def test_secrets_of_a_skill_for_people_need_a_slash(scene: Scene) -> None:
    await put(scene, "shy", SHY_KEY=VALUE)
    show = call("bash", command="sh /mnt/skills/public/shy/scripts/show.sh")
    scene.model.will_say(show, text("Empty."), show, text("There."))

    by_agent = await scene.ask("Show it.")
    by_user = await scene.ask("/shy show it")

    assert outputs(by_agent)[-1] == "[]"
    assert outputs(by_user)[-1] not in ("[]", f"[{VALUE}]")


async def test_a_skill_stays_active_after_a_crash(
    scene: Scene, process: GatewayProcess, gate: threading.Event
) -> None:
    await put(scene, "shy", SHY_KEY=VALUE)
    show = call("bash", command="sh /mnt/skills/public/shy/scripts/show.sh")
    scene.model.will_say(
        show, text("lost").held(gate), show + call("ls", path="/mnt/user-data"), text("Done.")
    )
    body = {"input": {"messages": [{"role": "user", "content": "/shy go"}]}, "on_disconnect": "continue"}
    async with process.client() as api:
        run = (await api.post(f"/threads/{scene.thread}/runs", json=body)).json()
        await scene.model.until(lambda scripted: len(scripted.requests) == 2)
        await stored(api)
    process.kill()
    gate.set()
    process.start()

    async with process.client() as api:
        values = (await api.get(f"/threads/{scene.thread}/runs/{run['run_id']}/join")).json()
        ended = (await api.get(f"/threads/{scene.thread}/runs/{run['run_id']}")).json()

    first, second, refused = [
        each["content"].strip() for each in values["messages"] if each["type"] == "tool"
    ]
    assert (first, second) == ("[(hidden)]", "[(hidden)]")
    assert "ls was not called: the active skill shy allows only" in refused
    assert (ended["attempt"], [used["name"] for used in ended["skills"]]) == (2, ["shy"])


def test_secrets_are_set_and_removed_in_the_terminal(process: GatewayProcess) -> None:
    def run(*words: str, value: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            process.command("skills", "secrets", *words),
            cwd=process.home,
            env=process.env,
            input=value,
            capture_output=True,
            text=True,
            check=False,
        )

    done = [
        run("set", "weather", "WEATHER_REGION", value=f"{VALUE}\n"),
        run("list", "weather", "--json"),
        run("remove", "weather", "WEATHER_REGION"),
        run("remove", "weather", "WEATHER_REGION"),
        run("set", "weather", "WETHER", value=VALUE),
    ]

    key = process.home / ".deer-flow" / ".skill_secrets_key"
    assert key.stat().st_mode & 0o077 == 0
    assert [each.returncode for each in done] == [0, 0, 0, 1, 1], [each.stderr for each in done]
    assert {"name": "WEATHER_REGION", "optional": True, "set": True} in json.loads(done[1].stdout)["secrets"]
    assert "WEATHER_REGION: not set (optional)" in done[2].stdout
    assert "it names WEATHER_KEY, WEATHER_REGION" in done[4].stderr
    assert not any(VALUE in each.stdout + each.stderr for each in done)


async def test_secrets_are_forgotten_when_they_are_removed(scene: Scene, documented: Documented) -> None:
    documented.problems.clear()
    one = {"secret": "WEATHER_KEY"}
    async with client_of(scene.gateway.api, event_hooks={"response": [documented.check]}) as api:
        put = await api.put("/skills/weather/secrets", json={"secrets": {"WEATHER_KEY": VALUE}})
        known = await api.get("/skills/weather/secrets")
        gone = await api.delete("/skills/weather/secrets", params=one)
        twice = await api.delete("/skills/weather/secrets", params=one)
        every = await api.delete("/skills/weather/secrets")
        wrong = await api.put("/skills/weather/secrets", json={"WEATHER_KEY": VALUE})

    assert (wrong.status_code, VALUE in wrong.text) == (422, False)
    answers = (put, known, gone, twice, every)
    assert [answer.status_code for answer in answers] == [200, 200, 200, 404, 200]
    assert put.json() == known.json()
    assert not any(secret["set"] for secret in every.json()["secrets"])
    assert documented.problems == []
