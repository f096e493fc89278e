"""Parts that this server does not have answer as pages expect of a server where they are switched off."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.gateway import Gateway, running_gateway
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

MATTER = "---\nname: tidy-notes\ndescription: Keeps notes tidy.\n---\n# Tidy\n"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with running_gateway(tmp_path_factory.mktemp("off"), None) as running:
        yield running


def packed(gateway: Gateway, thread: str, name: str, files: dict[str, str]) -> str:
    folder = gateway.home / ".deer-flow/users/default/threads" / thread / "user-data/outputs"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return f"/mnt/user-data/outputs/{name}"


async def test_accounts_are_off_and_say_so(api: httpx.AsyncClient) -> None:
    account = {"email": "a@example.org", "password": "long enough"}
    form = {"username": "a@example.org", "password": "long enough", "remember_me": "true"}

    refused = [
        await api.post("/v1/auth/login/local", data=form),
        await api.post("/v1/auth/register", json=account),
        await api.post("/v1/auth/initialize", json=account),
        await api.post("/v1/auth/change-password", json={"current_password": "a", "new_password": "b"}),
        await api.get("/v1/auth/oauth/google"),
        await api.get("/v1/auth/callback/google"),
    ]
    out = await api.post("/v1/auth/logout")

    assert [answer.status_code for answer in refused] == [403, 403, 409, 400, 404, 404]
    assert [answer.json()["detail"]["code"] for answer in refused] == [
        "provider_not_found",
        "registration_disabled",
        "system_already_initialized",
        *["provider_not_found"] * 3,
    ]
    assert all("Accounts are off" in answer.json()["detail"]["message"] for answer in refused)
    assert (out.status_code, isinstance(out.json()["message"], str)) == (200, True)
    assert {cookie.split("=")[0] for cookie in out.headers.get_list("set-cookie")} == {
        "access_token",
        "csrf_token",
    }


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/channels/slack/connect", 503),
        ("POST", "/channels/slack/runtime-config", 503),
        ("DELETE", "/channels/slack/runtime-config", 503),
        ("DELETE", "/channels/connections/c1", 404),
        ("POST", "/integrations/lark/install", 503),
        ("POST", "/integrations/lark/config/start", 503),
        ("POST", "/integrations/lark/config/complete", 503),
        ("POST", "/integrations/lark/config/credentials", 503),
        ("POST", "/integrations/lark/auth/start", 503),
        ("POST", "/integrations/lark/auth/complete", 503),
        ("GET", "/threads/t1/mcp-tasks/m1", 404),
        ("POST", "/threads/t1/mcp-tasks/m1/cancel", 404),
        ("POST", "/threads/t1/browser/navigate", 501),
    ],
)
async def test_what_is_not_there_is_refused_in_words(
    api: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    answer = await api.request(method, path, json={} if method == "POST" else None)

    assert answer.status_code == status
    assert isinstance(answer.json()["detail"], str)
    assert "Not Found: there is no" not in answer.text


async def test_a_browser_that_is_not_there_closes_its_socket_with_the_code_for_it(gateway: Gateway) -> None:
    url = gateway.api.replace("http", "ws", 1) + "/threads/t1/browser/stream"
    async with connect(url, proxy=None) as socket:
        said = await socket.recv()
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()

    assert '"type":"error"' in str(said)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4501


async def test_a_skill_is_installed_from_a_threads_archive(
    gateway: Gateway, api: httpx.AsyncClient, thread: str
) -> None:
    path = packed(gateway, thread, "tidy.skill", {"tidy/SKILL.md": MATTER, "tidy/a.html": "<b>x</b>"})
    packed(gateway, thread, "evil.skill", {"SKILL.md": MATTER, "../evil": "x"})
    (gateway.home / "outside.skill").write_bytes(b"")

    shown = await api.get(f"/threads/{thread}/artifacts{path}/SKILL.md")
    part = await api.get(f"/threads/{thread}/artifacts{path}/tidy/SKILL.md", headers={"Range": "bytes=0-2"})
    active = await api.get(f"/threads/{thread}/artifacts{path}/a.html")
    missing = await api.get(f"/threads/{thread}/artifacts{path}/no.md")
    installed = await api.post("/skills/install", json={"thread_id": thread, "path": path})
    again = await api.post("/skills/install", json={"thread_id": thread, "path": path})

    assert (shown.status_code, shown.text, len(shown.headers["etag"])) == (200, MATTER, 66)
    assert (part.status_code, part.text) == (206, "---")
    assert active.headers["content-disposition"].startswith("attachment")
    assert missing.status_code == 404
    said = {key: installed.json()[key] for key in ("success", "skill_name", "message")}
    assert said == {
        "success": True,
        "skill_name": "tidy-notes",
        "message": "Skill 'tidy-notes' is installed",
    }
    assert again.status_code == 409
    listed = (await api.get("/skills/tidy-notes")).json()
    assert (listed["category"], listed["enabled"], listed["editable"]) == ("custom", True, True)
    for bad, status in (
        ("/mnt/user-data/outputs/evil.skill", 400),
        ("/mnt/user-data/outputs/no.skill", 404),
        ("/mnt/user-data/outputs/a.zip", 400),
        ("/mnt/user-data/../../../../../../outside.skill", 403),
    ):
        answer = await api.post("/skills/install", json={"thread_id": thread, "path": bad})
        assert (answer.status_code, isinstance(answer.json()["detail"], str)) == (status, True), bad
    evil = await api.get(f"/threads/{thread}/artifacts/mnt/user-data/outputs/evil.skill/SKILL.md")
    unknown = await api.post("/skills/install", json={"thread_id": "nobody", "path": path})
    assert (evil.status_code, unknown.status_code) == (400, 404)
    assert not list(gateway.home.rglob("evil"))


async def test_a_folder_that_is_named_like_an_archive_is_a_folder(
    gateway: Gateway, api: httpx.AsyncClient, thread: str
) -> None:
    file = Path(gateway.home) / ".deer-flow/users/default/threads" / thread / "user-data/outputs/x.skill/a.md"
    file.parent.mkdir(parents=True)
    file.write_text("plain")

    found = await api.get(f"/threads/{thread}/artifacts/mnt/user-data/outputs/x.skill/a.md")
    missing = await api.get(f"/threads/{thread}/artifacts/mnt/user-data/outputs/x.skill/b.md")

    assert (found.text, missing.status_code) == ("plain", 404)
