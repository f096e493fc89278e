"""Skills and MCP servers: shown without secrets, changed without losing what the file has beside them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.gateway import Gateway

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
    servers["web"]["description"] = "The web."
    written = await api.put("/mcp/config", json={"mcp_servers": servers})

    assert shown.status_code == written.status_code == 200, written.text
    assert SECRET not in shown.text + written.text
    assert servers["files"]["env"] == {"TOKEN": "********", "OTHER": "$HOME"}
    assert servers["files"]["args"] == ["--root", "/data", "--api-key", "********", "--token=********"]
    assert servers["web"]["url"] == "https://********@example.org/mcp?api_key=********&x=1"
    assert (servers["web"]["enabled"], servers["web"]["tool_name_prefix"]) == (True, True)
    kept = json.loads(content(document))
    assert kept["note"] == "kept"
    for name, entry in DOCUMENT["mcpServers"].items():
        assert {key: kept["mcpServers"][name][key] for key in entry} == entry
    assert kept["mcpServers"]["web"]["description"] == "The web."


async def test_a_server_is_switched_and_left_out_servers_go(api: httpx.AsyncClient, document: Path) -> None:
    off = await api.patch("/mcp/config", json={"server_name": "web", "enabled": False})
    nobody = await api.patch("/mcp/config", json={"server_name": "nobody", "enabled": False})
    only = {"web": off.json()["mcp_servers"]["web"], "new": {"command": "npx", "args": ["-y", "some-server"]}}
    await api.put("/mcp/config", json={"mcp_servers": only})

    assert off.json()["mcp_servers"]["web"]["enabled"] is False
    assert (nobody.status_code, "files" in nobody.json()["detail"]) == (404, True)
    kept = json.loads(content(document))["mcpServers"]
    assert set(kept) == {"web", "new"}
    assert kept["web"]["headers"] == DOCUMENT["mcpServers"]["web"]["headers"]


REFUSED: list[dict[str, Any]] = [
    {"x": {"command": "bash", "args": ["-c", "id"]}},
    {"x": {"command": "/tmp/npx"}},
    {"x": {"command": ["npx"]}},
    {"x": {"command": 5}},
    {"x": {"command": "npx", "args": ["-c", "id"]}},
    {"x": {"command": "npx", "args": ["--call=id"]}},
    {"x": {"command": "uvx", "env": {"LD_PRELOAD": "/tmp/x.so"}}},
    {"x": {"command": "uvx", "env": {"node_options": "--require /tmp/x"}}},
    {"files": {**DOCUMENT["mcpServers"]["files"], "args": ["--other"]}},
    {"x": {"type": "http", "url": "https://example.org", "headers": {"A": "********"}}},
    {"x": {"type": "http"}},
    {"x": {"type": "carrier-pigeon", "url": "https://example.org"}},
]


async def test_servers_that_could_do_harm_or_make_no_sense_are_refused(
    api: httpx.AsyncClient, document: Path
) -> None:
    before = content(document)

    answers = [await api.put("/mcp/config", json={"mcp_servers": servers}) for servers in REFUSED]
    malformed = [
        await api.put("/mcp/config", json=body)
        for body in ({}, {"mcp_servers": []}, {"mcp_servers": {"": {}}})
    ]

    assert [answer.status_code for answer in answers] == [400] * len(REFUSED), [a.text for a in answers]
    assert [answer.status_code for answer in malformed] == [422] * 3
    assert SECRET not in "".join(answer.text for answer in answers)
    assert content(document) == before


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
