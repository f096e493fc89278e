"""Uploads and artifacts over HTTP: whole or not at all, and nothing in them can act on this gateway."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.gateway import Gateway, running_gateway
from support.waiting import until

LIMITS = {"max_files": 3, "max_file_size": 1000, "max_total_size": 2500}
HOSTILE_NAMES = ["<script>alert(1).txt", "a'b\"c;.txt", "😀 报告.md", "-rf", "%2e%2e", "a;b=c.txt"]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with running_gateway(tmp_path_factory.mktemp("files"), None, uploads=LIMITS) as running:
        yield running


def outputs(gateway: Gateway, thread: str) -> Path:
    folder = gateway.home / ".deer-flow/users/default/threads" / thread / "user-data/outputs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def form(*files: tuple[str, bytes]) -> list[tuple[str, tuple[str, bytes]]]:
    return [("files", file) for file in files]


async def names(api: httpx.AsyncClient, thread: str) -> list[str]:
    listed = (await api.get(f"/threads/{thread}/uploads/list")).json()
    assert listed["count"] == len(listed["files"])
    return [file["filename"] for file in listed["files"]]


async def test_an_upload_comes_back_as_it_was(api: httpx.AsyncClient, thread: str) -> None:
    answer = await api.post(f"/threads/{thread}/uploads", files=form(("a.txt", b"hello"), ("empty", b"")))

    body = answer.json()
    assert (answer.status_code, body["success"], body["skipped_files"]) == (200, True, [])
    first = body["files"][0]
    assert first | {"modified": 0} == {
        "filename": "a.txt",
        "size": 5,
        "path": "/mnt/user-data/uploads/a.txt",
        "virtual_path": "/mnt/user-data/uploads/a.txt",
        "artifact_url": f"/api/threads/{thread}/artifacts/mnt/user-data/uploads/a.txt",
        "extension": ".txt",
        "modified": 0,
    }
    assert await names(api, thread) == ["a.txt", "empty"]
    assert (await api.get(first["artifact_url"].removeprefix("/api"))).content == b"hello"
    assert (await api.delete(f"/threads/{thread}/uploads/a.txt")).json()["success"]
    assert (await api.delete(f"/threads/{thread}/uploads/a.txt")).status_code == 404
    assert await names(api, thread) == ["empty"]


async def test_an_upload_makes_the_thread_it_names(api: httpx.AsyncClient) -> None:
    made = await api.post("/threads/made-by-upload/uploads", files=form(("a.txt", b"x")))
    refused = await api.post("/threads/no%20thread/uploads", files=form(("a.txt", b"x")))

    assert (made.status_code, refused.status_code) == (200, 400)
    assert (await api.get("/threads/made-by-upload")).status_code == 200
    assert (await api.get("/threads/never-made/uploads/list")).status_code == 404


@pytest.mark.parametrize("name", HOSTILE_NAMES)
async def test_strange_names_come_back_unharmed(api: httpx.AsyncClient, thread: str, name: str) -> None:
    body = (await api.post(f"/threads/{thread}/uploads", files=form((name, b"x"), (name, b"y")))).json()

    sent = name.replace('"', "%22")  # as browsers and their like write a quote into a form
    assert body["files"][0]["filename"] == sent
    assert len(await names(api, thread)) == 2
    shown = await api.get(body["files"][0]["artifact_url"].removeprefix("/api"))
    assert shown.content == b"x"
    assert "\n" not in shown.headers["content-disposition"]
    assert shown.headers["content-disposition"].startswith("inline; filename*=UTF-8''")


@pytest.mark.parametrize(
    ("files", "code", "words"),
    [
        (form(("ok.txt", b"x"), ("../evil.txt", b"x")), 400, "slash"),
        (form(("ok.txt", b"x"), ("a\\b.txt", b"x")), 400, "slash"),
        (form(("ok.txt", b"x"), ("x" * 256, b"x")), 400, "longer than 255"),
        (form(("ok.txt", b"x"), ("big", b"x" * 1001)), 413, "max_file_size"),
        (form(*((f"{n}.txt", b"x" * 900) for n in range(3))), 413, "max_total_size"),
        (form(*((f"{n}.txt", b"x") for n in range(4))), 413, "max_files"),
        (form(*((f"{n}.txt", b"x") for n in range(50))), 400, "files"),
        ([("note", (None, b"just a field"))], 400, "no files were sent"),
    ],
)
async def test_a_refused_upload_stores_nothing_of_it(
    api: httpx.AsyncClient, thread: str, files: Any, code: int, words: str
) -> None:
    answer = await api.post(f"/threads/{thread}/uploads", files=files)

    assert (answer.status_code, words in answer.text) == (code, True), answer.text
    assert await names(api, thread) == []


async def test_the_limits_can_be_asked_for(api: httpx.AsyncClient, thread: str) -> None:
    assert (await api.get(f"/threads/{thread}/uploads/limits")).json() == LIMITS


async def test_a_flood_of_bytes_without_a_length_is_cut_off(api: httpx.AsyncClient, thread: str) -> None:
    async def flood() -> AsyncIterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
        for _ in range(100):
            yield b"x" * 100_000

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    try:
        answer = await api.post(f"/threads/{thread}/uploads", content=flood(), headers=headers)
        assert answer.status_code == 413
    except (httpx.WriteError, httpx.ReadError):
        pass  # cut off while it was still sending, which is as good
    assert await names(api, thread) == []


async def test_an_upload_that_is_cut_off_leaves_nothing(
    gateway: Gateway, api: httpx.AsyncClient, thread: str
) -> None:
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"POST /api/threads/{thread}/uploads HTTP/1.1\r\nHost: {host}\r\nContent-Length: 900\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
    )
    part = '--b\r\nContent-Disposition: form-data; name="files"; filename="half.txt"\r\n\r\nhalf'
    writer.write((head + part).encode())
    await writer.drain()
    writer.close()
    await writer.wait_closed()

    assert await names(api, thread) == []
    uploads = outputs(gateway, thread).parent / "uploads"
    await until(lambda: list(uploads.iterdir()) == [])


@pytest.mark.parametrize("name", ["a.html", "a.svg", "a.xhtml", "a.xml"])
async def test_what_a_browser_would_run_is_only_handed_over(
    gateway: Gateway, api: httpx.AsyncClient, thread: str, name: str
) -> None:
    (outputs(gateway, thread) / name).write_text("<script>alert(1)</script>")

    answer = await api.get(f"/threads/{thread}/artifacts/mnt/user-data/outputs/{name}")

    assert answer.headers["content-disposition"].startswith("attachment;")
    assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "private, no-cache"


async def test_other_files_are_shown_unless_a_download_is_wanted(
    gateway: Gateway, api: httpx.AsyncClient, thread: str
) -> None:
    (outputs(gateway, thread) / "a.md").write_bytes(b"# Hi")
    path = f"/threads/{thread}/artifacts/mnt/user-data/outputs/a.md"

    shown, taken = await api.get(path), await api.get(path, params={"download": "true"})

    assert shown.headers["content-disposition"].startswith("inline;")
    assert taken.headers["content-disposition"].startswith("attachment;")
    assert shown.headers["etag"] == f'"{hashlib.sha256(b"# Hi").hexdigest()}"'
    assert shown.headers["content-type"].startswith("text/markdown")


@pytest.mark.parametrize(
    ("wanted", "code", "content", "told"),
    [
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
        ("bytes=4-", 206, b"456789", "bytes 4-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=8-99999", 206, b"89", "bytes 8-9/10"),
        ("bytes=9-9", 206, b"9", "bytes 9-9/10"),
        ("bytes=10-", 416, b"", "bytes */10"),
        ("bytes=-0", 416, b"", "bytes */10"),
        ("bytes=999999999999-", 416, b"", "bytes */10"),
        ("bytes=5-2", 200, b"0123456789", None),
        ("bytes=0-1,4-5", 200, b"0123456789", None),
        ("bytes=-", 200, b"0123456789", None),
        ("bytes=" + "9" * 5000 + "-", 200, b"0123456789", None),
        ("lines=1-2", 200, b"0123456789", None),
        ("garbage", 200, b"0123456789", None),
    ],
)
async def test_a_part_of_a_file_can_be_asked_for(
    gateway: Gateway,
    api: httpx.AsyncClient,
    thread: str,
    wanted: str,
    code: int,
    content: bytes,
    told: str | None,
) -> None:
    (outputs(gateway, thread) / "digits.bin").write_bytes(b"0123456789")

    answer = await api.get(
        f"/threads/{thread}/artifacts/mnt/user-data/outputs/digits.bin", headers={"Range": wanted}
    )

    assert (answer.status_code, answer.content, answer.headers.get("content-range")) == (code, content, told)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("mnt/user-data/%2e%2e/%2e%2e/etc/passwd", 403),
        ("mnt/user-data/outputs/%2e%2e%2f%2e%2e%2f%2e%2e%2fx", 403),
        ("%2fetc%2fpasswd", 403),
        ("mnt/user-data/outputs/a%00b", 403),
        ("mnt/user-data/outputs/link", 403),
        ("mnt/user-data/outputs/" + "x" * 300, 403),
        ("mnt/user-data/outputs", 404),
        ("mnt/user-data/outputs/", 404),
        ("mnt/user-data/outputs/C:%5Cx", 404),
        ("mnt/user-data/outputs/missing", 404),
    ],
)
async def test_paths_that_lead_elsewhere_are_refused(
    gateway: Gateway, api: httpx.AsyncClient, thread: str, path: str, code: int
) -> None:
    (outputs(gateway, thread) / "link").symlink_to("/etc/passwd")

    answer = await api.get(f"/threads/{thread}/artifacts/{path}")

    assert (answer.status_code, "root:" in answer.text) == (code, False), answer.text


async def test_files_of_an_unknown_thread_are_not_there(api: httpx.AsyncClient) -> None:
    for path in ("/threads/nobody/artifacts/mnt/user-data/outputs/a", "/threads/%2e%2e/uploads/list"):
        assert (await api.get(path)).status_code == 404


async def test_readers_that_leave_early_leave_no_file_open(
    gateway: Gateway, api: httpx.AsyncClient, thread: str
) -> None:
    with (outputs(gateway, thread) / "huge.bin").open("wb") as file:
        file.truncate(1 << 33)
    path = f"/threads/{thread}/artifacts/mnt/user-data/outputs/huge.bin"

    for _ in range(5):
        async with api.stream("GET", path) as response:
            assert response.headers["content-length"] == str(1 << 33)
            await anext(response.aiter_raw())

    await until(lambda: not any("huge.bin" in str(fd.resolve()) for fd in Path("/proc/self/fd").iterdir()))
