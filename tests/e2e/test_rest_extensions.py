"""Skills and MCP servers: shown without secrets, changed without losing what the file has beside them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.gateway import Gateway, running_gateway
from support.mcp_server import serving_mcp
from support.model_server import ScriptedModel, text

SECRET = "s3cret-value"
DOCUMENT: dict[str, Any] = {
    "note": "kept",
    "mcpServers": {
        "files": {
            "command": "/opt/own/server",
            "args": ["--root", "/data", "--api-key", SECRET, f"--token={SECRET}"],
            "env": {"TOKEN": SECRET, "OTHER": "$HOME"},
            "custom_key": {"deep": 1},
        },
        "web": {
            "type": "http",
            "url": f"https://user:{SECRET}@example.org/mcp?api_key={SECRET}&x=1",
            "headers": {"Authorization": f"Bearer {SECRET}"},
            "oauth": {"token_url": "https://example.org/t", "client_secret": SECRET},
        },
    },
}


@pytest.fixture
def document(gateway: Gateway) -> Path:
    path = gateway.home / "extensions_config.json"
    path.write_text(json.dumps(DOCUMENT))
    return path


def content(path: Path) -> str:
    return path.read_text()


async def test_servers_are_shown_without_secrets_and_survive_a_round_trip(
    api: httpx.AsyncClient, document: Path
) -> None:
    shown = await api.get("/mcp/config")
    servers = shown.json()["mcp_servers"]
    servers["web"]["enabled"] = False
    written = await api.put("/mcp/config", json={"mcp_servers": servers})

    assert shown.status_code == written.status_code == 200, written.text
    assert SECRET not in shown.text + written.text
    assert servers["files"]["env"] == {"TOKEN": "********", "OTHER": "$HOME"}
    assert servers["files"]["args"] == ["--root", "/data", "--api-key", "********", "--token=********"]
    assert servers["web"]["url"] == "https://********@example.org/mcp?api_key=********&x=1"
    assert servers["web"]["tool_name_prefix"] is True
    kept = json.loads(content(document))
    assert kept == {
        **DOCUMENT,
        "mcpServers": {
            "files": {**DOCUMENT["mcpServers"]["files"], "enabled": True},
            "web": {**DOCUMENT["mcpServers"]["web"], "enabled": False},
        },
    }


async def test_a_server_is_switched_and_those_set_over_http_are_changed_and_go(
    api: httpx.AsyncClient, document: Path
) -> None:
    async def put(**servers: Any) -> dict[str, Any]:
        answer = await api.put("/mcp/config", json={"mcp_servers": {**shown, **servers}})
        assert answer.status_code == 200, answer.text
        return dict(json.loads(content(document))["mcpServers"])

    off = await api.patch("/mcp/config", json={"server_name": "web", "enabled": False})
    nobody = await api.patch("/mcp/config", json={"server_name": "nobody", "enabled": False})
    shown = off.json()["mcp_servers"]
    new = {"url": "http://8.8.8.8/mcp", "headers": {"A": "value-of-mine"}, "enabled": False}
    added = await put(new=new)
    changed = await put(new={**new, "headers": {"A": "********", "B": "two"}, "description": "Mine."})
    gone = await put()

    assert shown["web"]["enabled"] is False
    assert (nobody.status_code, "files" in nobody.json()["detail"]) == (404, True)
    assert added["new"] == {**new, "set_over_http": True}
    assert changed["new"]["headers"] == {"A": "value-of-mine", "B": "two"}
    assert set(gone) == {"files", "web"}


WEB = DOCUMENT["mcpServers"]["web"]
MINE = {"type": "http", "url": "http://8.8.8.8/mcp", "enabled": False}
OAUTH = {"token_url": "http://8.8.8.8/", "client_secret": "$HOME"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"x": {"command": "npx", "args": ["-yc", "id > F"]}}, "mcp.allow_http_commands"),
    ({"x": {"command": "bash", "args": ["-c", "id"]}}, "mcp.allow_http_commands"),
    ({"x": {"command": ["npx"]}}, "mcp.allow_http_commands"),
    ({"x": {"command": 5}}, "mcp.allow_http_commands"),
    ({"x": {**MINE, "args": ["x"]}}, "mcp.allow_http_commands"),
    ({"x": {**MINE, "env": {"A": "b"}}}, "mcp.allow_http_commands"),
    ({"files": {**DOCUMENT["mcpServers"]["files"], "args": ["--other"]}}, "switched and tested"),
    ({"web": {**WEB, "description": "Theirs."}}, "switched and tested"),
    ({"web": {**WEB, "url": "http://8.8.8.8/"}}, "switched and tested"),
    ({"web": None}, "cannot be removed"),
    ({"x": {**MINE, "headers": {"A": "********"}}}, "there is no value to keep"),
    ({"x": {**MINE, "headers": {"A": "$OPENAI_API_KEY"}}}, "the variable $OPENAI_API_KEY"),
    ({"x": {**MINE, "headers": {"A": "${HOME}"}}}, "the variable $HOME"),
    ({"x": {"type": "http", "url": "$OPENAI_API_KEY"}}, "the variable $OPENAI_API_KEY"),
    ({"x": {**MINE, "description": "$OPENAI_API_KEY"}}, "the variable $OPENAI_API_KEY"),
    (
        {"x": {**MINE, "oauth": OAUTH}},
        "the variable $HOME",
    ),
    ({"x": {"type": "http", "url": "http://127.0.0.1:9/mcp"}}, "runs.webhook_allow_cidrs"),
    ({"x": {"type": "sse", "url": "http://2130706433/mcp"}}, "runs.webhook_allow_cidrs"),
    ({"x": {"type": "http", "url": "http://[::ffff:168.63.129.16]/"}}, "runs.webhook_allow_cidrs"),
    ({"x": {**MINE, "oauth": {"token_url": "http://169.254.169.254/"}}}, "runs.webhook_allow_cidrs"),
    ({"x": {"type": "http", "url": "file:///etc/passwd"}}, "is no address"),
    ({"x": {"type": "http", "enabled": True}}, "needs `url`"),
    ({"x": {**MINE, "type": "carrier-pigeon"}}, "carrier-pigeon"),
]


async def test_servers_that_could_do_harm_or_make_no_sense_are_refused(
    api: httpx.AsyncClient, document: Path
) -> None:
    before = content(document)
    shown = (await api.get("/mcp/config")).json()["mcp_servers"]

    async def put(servers: dict[str, Any]) -> httpx.Response:
        sent = {name: entry for name, entry in {**shown, **servers}.items() if entry is not None}
        return await api.put("/mcp/config", json={"mcp_servers": sent})

    answers = [(await put(servers), problem) for servers, problem in REFUSED]
    malformed = [
        await api.put("/mcp/config", json=body)
        for body in ({}, {"mcp_servers": []}, {"mcp_servers": {"": {}}})
    ]

    wrong = [(a.status_code, a.text, p) for a, p in answers if a.status_code != 400 or p not in a.text]
    assert wrong == []
    assert [answer.status_code for answer in malformed] == [422] * 3
    assert SECRET not in "".join(answer.text for answer, _ in answers)
    assert content(document) == before


async def test_variables_of_an_entry_stay_with_their_address(tmp_path: Path, model: ScriptedModel) -> None:
    entry = {"url": "http://8.8.8.8/mcp", "headers": {"A": "$SOME_TOKEN"}, "enabled": False}
    entry = {**entry, "set_over_http": True}
    (tmp_path / "extensions_config.json").write_text(json.dumps({"mcpServers": {"web": entry}}))
    with running_gateway(tmp_path, model.base_url) as gateway:
        async with gateway.client() as api:

            async def put(**changes: Any) -> int:
                body = {"mcp_servers": {"web": {**entry, **changes}}}
                return (await api.put("/mcp/config", json=body)).status_code

            assert await put(headers={"A": "$SOME_TOKEN", "B": "$SOME_TOKEN"}) == 200
            assert await put(headers={"A": "$OTHER"}) == 400
            assert await put(url="http://8.8.4.4/mcp") == 400
            assert await put(url="http://8.8.4.4/mcp", headers={"A": "literal"}) == 200


async def test_commands_are_set_over_http_where_the_operator_allows_it(
    tmp_path: Path, model: ScriptedModel
) -> None:
    path = tmp_path / "extensions_config.json"
    path.write_text(json.dumps(DOCUMENT))
    program = {"command": "npx", "args": ["-y", "some-server"], "env": {"T": "$SOME_TOKEN"}, "enabled": False}
    with running_gateway(tmp_path, model.base_url, mcp={"allow_http_commands": True}) as gateway:
        async with gateway.client() as api:
            added = await api.put("/mcp/config", json={"mcp_servers": {"new": program}})
            other = await api.put("/mcp/config", json={"mcp_servers": {"x": {"command": "/bin/sh"}}})

    assert added.status_code == 200, added.text
    assert json.loads(content(path))["mcpServers"] == {"new": {**program, "set_over_http": True}}
    assert (other.status_code, "DEER_FLOW_MCP_STDIO_COMMAND_ALLOWLIST" in other.text) == (400, True)


async def test_a_server_set_over_http_is_dialled_at_checked_addresses_only(
    tmp_path: Path, model: ScriptedModel
) -> None:
    with serving_mcp() as url:
        theirs = {"url": url, "set_over_http": True}
        named = {**theirs, "url": url.replace("127.0.0.1", "localhost")}
        servers = {"theirs": theirs, "ours": {"url": url}, "named": named}
        (tmp_path / "extensions_config.json").write_text(json.dumps({"mcpServers": servers}))
        with running_gateway(tmp_path, model.base_url) as gateway:
            async with gateway.client() as api:
                refused = [await api.post(f"/mcp/servers/{name}/test") for name in ("theirs", "named")]
                ours = await api.post("/mcp/servers/ours/test")
                missing = await api.post("/mcp/servers/nobody/test")
        networks = {"webhook_allow_cidrs": ["127.0.0.0/8", "::1/128"]}
        with running_gateway(tmp_path, model.base_url, runs=networks) as gateway:
            async with gateway.client() as api:
                allowed = await api.post("/mcp/servers/theirs/test")

    assert [answer.json()["state"] for answer in refused] == ["failed", "failed"]
    assert all("see runs.webhook_allow_cidrs" in answer.json()["problem"] for answer in refused)
    assert ours.json()["state"] == allowed.json()["state"] == "ready", allowed.text
    assert missing.status_code == 404


async def test_skills_are_listed_and_switched_side_by_side(api: httpx.AsyncClient, gateway: Gateway) -> None:
    listed = (await api.get("/skills")).json()["skills"]
    assert listed == []
    for name in ("dig", "fly", "swim"):
        folder = gateway.home / "skills" / ("custom" if name == "dig" else "public") / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: To {name}.\nlicense: MIT\n---\nGo.\n"
        )
    path = gateway.home / "extensions_config.json"
    path.write_text(json.dumps({"note": 1, "skills": {"fly": {"enabled": True, "own": 2}}}))

    answers = await asyncio.gather(
        *(api.put(f"/skills/{name}", json={"enabled": False}) for name in ("dig", "fly", "swim"))
    )
    again = await api.put("/skills/swim", json={"enabled": True})

    assert [answer.status_code for answer in answers] == [200] * 3
    assert again.json() == {
        "name": "swim",
        "description": "To swim.",
        "license": "MIT",
        "category": "public",
        "enabled": True,
        "editable": False,
        "source": "public",
    }
    states = {
        skill["name"]: (skill["enabled"], skill["editable"])
        for skill in (await api.get("/skills")).json()["skills"]
    }
    assert states == {"dig": (False, True), "fly": (False, False), "swim": (True, False)}
    assert (await api.get("/skills/dig")).json()["enabled"] is False
    kept = json.loads(path.read_text())
    assert (kept["note"], kept["skills"]["fly"]) == (1, {"own": 2, "enabled": False})
    assert (await api.put("/skills/nobody", json={"enabled": True})).status_code == 404
    assert (await api.put("/skills/dig", json={"enabled": "perhaps"})).status_code == 422


async def test_a_broken_file_is_said_to_be_broken_and_left_alone(
    api: httpx.AsyncClient, gateway: Gateway
) -> None:
    path = gateway.home / "extensions_config.json"
    path.write_text("{broken")

    answers = [
        await api.get("/mcp/config"),
        await api.patch("/mcp/config", json={"server_name": "x", "enabled": True}),
    ]

    assert [answer.status_code for answer in answers] == [400, 400]
    assert "extensions_config.json" in answers[0].json()["detail"]
    assert path.read_text() == "{broken"


async def test_a_thread_has_no_goal(api: httpx.AsyncClient) -> None:
    assert (await api.get("/threads/t1/goal")).json() == {"goal": None}


async def test_what_comes_over_http_is_never_a_variable(tmp_path: Path, model: ScriptedModel) -> None:
    (tmp_path / ".env").write_text("SOME_TOKEN=canary-of-the-environment\n")
    model.will_say(text("Done."))
    words = "$SOME_TOKEN ${SOME_TOKEN}"
    context = {"agent_name": "scout", "note": "$SOME_TOKEN"}
    with running_gateway(tmp_path, model.base_url, agents_api={"enabled": True}) as gateway:
        async with gateway.client() as api:
            answers = [
                await api.post("/agents", json={"name": "scout", "soul": words, "description": words}),
                await api.get("/agents/scout"),
                await api.post("/assistants", json={"graph_id": "lead_agent", "context": context}),
                await api.post(
                    "/threads/t1/runs/wait",
                    json={"input": {"messages": [{"role": "user", "content": words}]}, "context": context},
                ),
                await api.get("/threads/t1/state"),
            ]

    assert [answer.status_code for answer in answers] == [201, 200, 200, 200, 200], [a.text for a in answers]
    assert words in json.dumps([request.body for request in model.requests])
    seen = "".join(answer.text for answer in answers) + json.dumps([each.body for each in model.requests])
    assert "canary-of-the-environment" not in seen
