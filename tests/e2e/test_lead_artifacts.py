"""Files that an agent made: listed, in one ZIP, and edited from outside, over HTTP."""

import asyncio
import hashlib
import io
import json
import os
import zipfile
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
from support.gateway import Gateway
from support.model_server import ScriptedModel, call, text
from support.shared import shared_gateway

from deerflow.domain import ThreadFolders

OUTPUTS = "/mnt/user-data/outputs"


gateway = shared_gateway()


@pytest.fixture
def folders(gateway: Gateway, thread: str) -> ThreadFolders:
    assert gateway.deerflow is not None
    found = gateway.deerflow.folders("default", thread)
    found.create()
    return found


def put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def sha(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


async def edit(api: httpx.AsyncClient, thread: str, path: str, content: Any, expected: Any) -> httpx.Response:
    body = json.dumps({"content": content, "expected_sha256": expected})  # ASCII, whatever the content
    head = {"Content-Type": "application/json"}
    return await api.put(f"/threads/{thread}/artifacts{path}", content=body, headers=head)


async def test_all_outputs_come_in_one_zip(
    api: httpx.AsyncClient, thread: str, folders: ThreadFolders
) -> None:
    put(folders.outputs, "report.md", "# Report")
    put(folders.outputs, "data/报告 1.csv", "a,b\n" * 100_000)
    put(folders.outputs, "data/empty", "")

    listed = (await api.get(f"/threads/{thread}/artifacts")).json()
    answer = await api.get(f"/threads/{thread}/artifacts?zip")

    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        assert {name: len(archive.read(name)) for name in archive.namelist()} == {
            "data/empty": 0,
            "data/报告 1.csv": 400_000,
            "report.md": 8,
        }
    assert answer.headers["content-type"] == "application/zip"
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert [file["path"] for file in listed["files"]] == [
        f"{OUTPUTS}/{name}" for name in ("data/empty", "data/报告 1.csv", "report.md")
    ]
    read = await api.get(listed["files"][2]["artifact_url"].removeprefix("/api"))
    assert read.text == "# Report"


async def test_links_pipes_and_hidden_files_stay_out_and_names_are_harmless(
    api: httpx.AsyncClient, thread: str, folders: ThreadFolders, tmp_path: Path
) -> None:
    secret = put(tmp_path, "secret", "do not show")
    put(folders.outputs, ".tool-results/long.txt", "internal")
    put(folders.outputs, "x\\..\\evil.txt", "x")
    put(folders.outputs, "a:b\n.txt", "x")
    (folders.outputs / "link").symlink_to(secret)
    (folders.outputs / "folder").symlink_to(tmp_path)
    os.link(secret, folders.outputs / "hard")
    os.mkfifo(folders.outputs / "pipe")

    answer = await api.get(f"/threads/{thread}/artifacts", params={"zip": "1"})

    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert sorted(archive.namelist()) == ["a_b_.txt", "x_.._evil.txt"]
    assert b"do not show" not in answer.content


async def test_an_outputs_folder_that_is_a_link_shows_nothing(
    api: httpx.AsyncClient, thread: str, folders: ThreadFolders, tmp_path: Path
) -> None:
    put(tmp_path, "secret", "do not show")
    folders.outputs.rmdir()
    folders.outputs.symlink_to(tmp_path)

    listed = (await api.get(f"/threads/{thread}/artifacts")).json()
    answer = await api.get(f"/threads/{thread}/artifacts?zip")

    assert listed == {"files": [], "count": 0}
    assert zipfile.ZipFile(io.BytesIO(answer.content)).namelist() == []


async def test_an_empty_thread_has_an_empty_zip_and_no_thread_none(
    api: httpx.AsyncClient, thread: str
) -> None:
    answer = await api.get(f"/threads/{thread}/artifacts?zip=true")

    assert zipfile.ZipFile(io.BytesIO(answer.content)).namelist() == []
    assert (await api.get("/threads/nowhere/artifacts?zip")).status_code == 404


async def test_a_text_is_replaced_when_it_is_what_the_caller_saw(
    api: httpx.AsyncClient, thread: str, folders: ThreadFolders
) -> None:
    path = put(folders.outputs, "report.md", "old")
    path.chmod(0o640)

    seen = await api.get(f"/threads/{thread}/artifacts{OUTPUTS}/report.md")
    written = await edit(api, thread, f"{OUTPUTS}/report.md", "neu: 新", seen.headers["etag"].strip('"'))
    again = await edit(api, thread, f"{OUTPUTS}/report.md", "too late", sha("old"))

    assert written.json() == {"path": f"{OUTPUTS}/report.md", "sha256": sha("neu: 新"), "size": 8}
    assert (again.status_code, again.json()["code"]) == (412, "changed")
    assert path.read_text() == "neu: 新"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in folders.outputs.iterdir()] == ["report.md"]


async def test_of_many_who_edit_at_once_one_wins(
    api: httpx.AsyncClient, thread: str, folders: ThreadFolders
) -> None:
    path = put(folders.outputs, "a.txt", "old")

    answers = [await edit(api, thread, f"{OUTPUTS}/a.txt", f"new {n}", sha("old")) for n in range(3)]

    assert [answer.status_code for answer in answers] == [200, 412, 412]
    assert path.read_text() == "new 0"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{OUTPUTS}/nothing.md", 404),
        (f"{OUTPUTS}/link.md", 403),
        (f"{OUTPUTS}/binary", 415),
        (f"{OUTPUTS}/", 404),
        ("/etc/passwd", 403),
        ("/mnt/user-data/outputs/%2e%2e/%2e%2e/x", 403),
        ("/mnt/user-data/../x", 403),
    ],
)
async def test_what_may_not_be_edited_is_refused_and_stays(
    api: httpx.AsyncClient, thread: str, folders: ThreadFolders, tmp_path: Path, path: str, status: int
) -> None:
    secret = put(tmp_path, "secret", "do not touch")
    (folders.outputs / "link.md").symlink_to(secret)
    put(folders.outputs, "binary", b"\x00\xff")
    digest = hashlib.sha256(b"\x00\xff" if path.endswith("binary") else b"do not touch").hexdigest()

    answer = await edit(api, thread, path, "x", digest)

    assert answer.status_code == status
    assert secret.read_text() == "do not touch"
    assert (folders.outputs / "binary").read_bytes() == b"\x00\xff"


@pytest.mark.parametrize(
    ("content", "expected", "status"),
    [
        ("x" * (2 * 1024 * 1024 + 1), sha("old"), 413),
        ("\ud800", sha("old"), 415),
        ("x", "ABC", 422),
        ("x", None, 422),
        (7, sha("old"), 422),
    ],
)
async def test_malformed_edits_are_refused(
    api: httpx.AsyncClient, thread: str, folders: ThreadFolders, content: Any, expected: Any, status: int
) -> None:
    path = put(folders.outputs, "a.txt", "old")

    answer = await edit(api, thread, f"{OUTPUTS}/a.txt", content, expected)

    assert answer.status_code == status, answer.text
    assert path.read_text() == "old"


async def test_a_file_is_not_edited_while_a_run_works_and_the_agent_notices_an_edit(
    api: httpx.AsyncClient, server: ScriptedModel, thread: str, folders: ThreadFolders
) -> None:
    server.reset()
    path = put(folders.outputs, "a.txt", "old")
    gate = Event()
    read = call("read_file", description="r", path=f"{OUTPUTS}/a.txt")
    write = call("write_file", description="w", path=f"{OUTPUTS}/a.txt", content="agent")
    server.will_say(read, text("Read.").held(gate), write, text("Left."))
    body = {"input": {"messages": [{"role": "user", "content": "go"}]}}

    running = asyncio.create_task(api.post(f"/threads/{thread}/runs/wait", json=body))
    await server.until(lambda model: len(model.requests) == 2)
    busy = await edit(api, thread, f"{OUTPUTS}/a.txt", "mine", sha("old"))
    gate.set()
    await running
    free = await edit(api, thread, f"{OUTPUTS}/a.txt", "mine", sha("old"))
    values = (await api.post(f"/threads/{thread}/runs/wait", json=body)).json()

    assert (busy.status_code, free.status_code) == (409, 200)
    assert "has changed since you last read" in str(values["messages"][-2]["content"])
    assert path.read_text() == "mine"
