"""Uploaded documents become Markdown beside them, whatever is in them, and the model hears of both."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support import documents
from support.gateway import Gateway, running_gateway
from support.model_server import ScriptedModel, text

from deerflow.config import UploadSettings
from deerflow.domain import ThreadFolders
from deerflow.files.upload_conversion import DocumentConverter
from deerflow.files.uploads import StoredUpload, list_uploads

UPLOADS = "/mnt/user-data/uploads"
SETTINGS = UploadSettings()
PATIENCE_SECONDS = 90
"""How long an upload waits here: longer than its documents take on a busy machine."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, server: ScriptedModel) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("home")
    with running_gateway(home, server.base_url) as running:
        assert running.deerflow is not None
        running.deerflow.documents._wait_seconds = PATIENCE_SECONDS
        yield running


@pytest.fixture
def folders(tmp_path: Path) -> ThreadFolders:
    found = ThreadFolders("t1", tmp_path)
    found.create()
    return found


async def upload(api: httpx.AsyncClient, thread: str, **files: bytes) -> dict[str, dict[str, Any]]:
    form = [("files", (name.replace("_", "."), content)) for name, content in files.items()]
    answer = await api.post(f"/threads/{thread}/uploads", files=form)
    assert answer.status_code == 200, answer.text
    return {file["filename"]: file for file in answer.json()["files"]}


async def read(api: httpx.AsyncClient, file: dict[str, Any]) -> str:
    return (await api.get(file["markdown_artifact_url"].removeprefix("/api"))).text


async def convert(
    folders: ThreadFolders, name: str, content: bytes, **options: Any
) -> tuple[StoredUpload, DocumentConverter]:
    (folders.uploads / name).write_bytes(content)
    converter = DocumentConverter(settings=lambda: SETTINGS, **{"wait_seconds": PATIENCE_SECONDS, **options})
    (found,) = await converter.convert(folders, [StoredUpload("t1", name, len(content), 0.0)])
    return found, converter


async def test_documents_are_converted_and_the_model_is_told_of_both(
    api: httpx.AsyncClient, server: ScriptedModel, thread: str
) -> None:
    server.reset()
    server.will_say(text("Read."))

    files = await upload(
        api,
        thread,
        a_pdf=documents.pdf("First page", "Second page"),
        b_docx=documents.word("Hello there", "A second"),
        c_xlsx=documents.sheet([["name", "count"], ["deer|fox", 3], [None, 4.5]]),
        d_pptx=documents.slides("A plan", "Begin", "End"),
        e_txt=b"plain",
    )
    texts = {name: await read(api, file) for name, file in files.items() if name != "e.txt"}
    listed = (await api.get(f"/threads/{thread}/uploads/list")).json()
    body = {"input": {"messages": [{"role": "user", "content": "Read them."}]}}
    await api.post(f"/threads/{thread}/runs/wait", json=body)

    assert files["a.pdf"]["markdown_file"] == "a.pdf.md"
    assert files["a.pdf"]["markdown_path"] == files["a.pdf"]["markdown_virtual_path"] == f"{UPLOADS}/a.pdf.md"
    assert "markdown_file" not in files["e.txt"]
    assert "## Page 2\n\nSecond page" in texts["a.pdf"]
    assert "# Top" in texts["b.docx"]
    assert "Hello there\n\nA second" in texts["b.docx"]
    assert "## Numbers" in texts["c.xlsx"]
    assert "| deer\\|fox | 3 |\n|  | 4.5 |" in texts["c.xlsx"]
    assert "## Slide 1: A plan\n\n- Begin\n- End" in texts["d.pptx"]
    assert "| left | right |" in texts["d.pptx"]
    assert "Notes: Say it slowly." in texts["d.pptx"]
    assert [file["filename"] for file in listed["files"]] == sorted(files)
    assert listed["files"][0]["markdown_file"] == "a.pdf.md"
    seen = str(server.requests[-1].messages)
    assert f"- {UPLOADS}/a.pdf (" in seen
    assert f"its text as Markdown: {UPLOADS}/a.pdf.md" in seen
    assert f"- {UPLOADS}/a.pdf.md" not in seen


async def test_deleting_a_document_deletes_its_markdown(api: httpx.AsyncClient, thread: str) -> None:
    await upload(api, thread, a_pdf=documents.pdf("x"), b_txt=b"y")

    await api.delete(f"/threads/{thread}/uploads/a.pdf")
    listed = (await api.get(f"/threads/{thread}/uploads/list")).json()

    assert [file["filename"] for file in listed["files"]] == ["b.txt"]
    gone = await api.get(f"/threads/{thread}/artifacts{UPLOADS}/a.pdf.md")
    assert gone.status_code == 404


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.pdf", b"no pdf at all", "cannot be read"),
        ("a.pdf", b"", "cannot be read"),
        ("a.pdf", documents.pdf(""), "no text in it"),
        ("a.docx", b"PK\x03\x04 broken", "damaged"),
        ("a.docx", documents.sheet([["x"]]), "cannot be read"),
        ("a.xlsx", documents.word("x"), "cannot be read"),
        ("a.doc", b"\xd0\xcf\x11\xe0", "before 2007"),
        ("a.pptx", b"\0" * 1000, "damaged"),
    ],
)
async def test_what_cannot_be_read_stays_as_it_is_and_says_why(
    folders: ThreadFolders, name: str, content: bytes, said: str
) -> None:
    found, _ = await convert(folders, name, content)

    assert said in (found.markdown_note or "")
    assert found.to_dict()["markdown_note"] == found.markdown_note
    assert [each.name for each in folders.uploads.iterdir()] == [name]
    assert (folders.uploads / name).read_bytes() == content


@pytest.mark.parametrize("make", [documents.bomb, documents.laughing_word, documents.endless_pdf])
async def test_a_hostile_document_hurts_nobody(folders: ThreadFolders, make: Any) -> None:
    name = "a.pdf" if make is documents.endless_pdf else "a.docx"
    content = make()

    async with asyncio.timeout(90):
        found, _ = await convert(folders, name, content, max_seconds=20)

    assert (found.markdown, bool(found.markdown_note)) == (None, True)
    assert [each.name for each in folders.uploads.iterdir()] == [name]


async def test_a_document_that_takes_too_long_is_given_up(folders: ThreadFolders) -> None:
    found, _ = await convert(folders, "a.pdf", documents.pdf("x"), max_seconds=0.01)

    assert "longer than 0.01 seconds" in (found.markdown_note or "")


async def test_an_upload_does_not_wait_for_ever_and_the_work_goes_on(folders: ThreadFolders) -> None:
    found, converter = await convert(folders, "a.pdf", documents.pdf("Later"), wait_seconds=0.01)
    await asyncio.gather(*converter._working)

    assert found.markdown_note == "It is still being converted to Markdown."
    assert "Later" in (folders.uploads / "a.pdf.md").read_text()
    assert [upload.markdown for upload in list_uploads(folders)] == ["a.pdf.md"]


async def test_closing_ends_what_is_at_work(folders: ThreadFolders) -> None:
    _, converter = await convert(folders, "a.pdf", documents.pdf("x"), wait_seconds=0.01)

    async with asyncio.timeout(60):
        await converter.aclose()

    assert [each.name for each in folders.uploads.iterdir()] == ["a.pdf"]


async def test_a_file_of_the_users_is_not_overwritten_and_links_are_not_read(
    folders: ThreadFolders, tmp_path: Path
) -> None:
    (folders.uploads / "a.pdf.md").write_text("mine")
    (tmp_path / "secret.pdf").write_bytes(documents.pdf("secret"))
    (folders.uploads / "b.pdf").symlink_to(tmp_path / "secret.pdf")

    taken, converter = await convert(folders, "a.pdf", documents.pdf("x"))
    (linked,) = await converter.convert(folders, [StoredUpload("t1", "b.pdf", 1, 0.0)])

    assert "a file 'a.pdf.md' already" in (taken.markdown_note or "")
    assert (folders.uploads / "a.pdf.md").read_text() == "mine"
    assert "not found" in (linked.markdown_note or "")


async def test_nothing_is_converted_if_the_settings_say_so(folders: ThreadFolders) -> None:
    (folders.uploads / "a.pdf").write_bytes(documents.pdf("x"))
    off = DocumentConverter(settings=lambda: UploadSettings(auto_convert_documents=False))

    (found,) = await off.convert(folders, [StoredUpload("t1", "a.pdf", 1, 0.0)])

    assert (found.markdown, found.markdown_note) == (None, None)
    assert [each.name for each in folders.uploads.iterdir()] == ["a.pdf"]


async def test_a_long_document_is_cut_and_says_so(folders: ThreadFolders) -> None:
    rows = [[f"row {number}", "x" * 1200] for number in range(5200)]

    found, _ = await convert(folders, "a.xlsx", documents.sheet(rows))

    assert found.markdown == "a.xlsx.md", found.markdown_note
    written = (folders.uploads / "a.xlsx.md").read_text()
    assert len(written) < 4_100_000
    assert written.rstrip().endswith("left out.]")
