"""`view_image`: images by their bytes, within the limit, of this thread only."""

import base64
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import AgentState
from langchain_core.messages import ToolMessage
from support.sandboxes import FolderSandbox, run_context
from support.tool_calls import run_calls, tool_call

from deerflow.context import RunContext
from deerflow.tools.vision import MAX_IMAGE_BYTES, mime_type, view_image_tool

PNG = b"\x89PNG\r\n\x1a\n" + b"rest"
UPLOADS = "/mnt/user-data/uploads"


class State(AgentState[Any]):
    viewed_images: dict[str, dict[str, str]]


async def view(context: RunContext, path: str) -> tuple[dict[str, Any], ToolMessage]:
    call = tool_call("view_image", image_path=path)
    state, _ = await run_calls([view_image_tool], context, call, state_schema=State)
    message = next(message for message in state["messages"] if isinstance(message, ToolMessage))
    return state.get("viewed_images", {}), message


async def test_an_image_reaches_the_state_with_its_true_kind(tmp_path: Path) -> None:
    context = run_context(tmp_path)
    (context.folders.uploads / "a.JPG").write_bytes(PNG)

    viewed, message = await view(context, f"{UPLOADS}/./a.JPG")

    image = {"base64": base64.b64encode(PNG).decode(), "mime_type": "image/png"}
    assert viewed == {f"{UPLOADS}/a.JPG": image}
    assert message.status == "success"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8", "image/webp"),
        (b"RIFF\0\0\0\0WAVE", None),
        (b"<svg>", None),
        (b"", None),
    ],
)
def test_the_first_bytes_tell_the_kind(content: bytes, kind: str | None) -> None:
    assert mime_type(content) == kind


async def test_what_is_no_image_of_the_thread_is_refused(tmp_path: Path) -> None:
    context = run_context(tmp_path)
    (context.folders.uploads / "fake.png").write_bytes(b"#!/bin/sh")
    (context.folders.uploads / "note.txt").write_bytes(PNG)
    (context.folders.root / "user-data" / "other.png").write_bytes(PNG)
    sentences = {
        f"{UPLOADS}/fake.png": "is not a JPEG, PNG, WebP or GIF image",
        f"{UPLOADS}/note.txt": "is not a .jpg",
        f"{UPLOADS}/none.png": "There is no file",
        f"{UPLOADS}/../../../etc/a.png": "must be below",
        "/mnt/user-data/other.png": "must be below",
        "/etc/a.png": "must be below",
    }

    for path, sentence in sentences.items():
        viewed, message = await view(context, path)

        assert (viewed, message.status) == ({}, "error"), path
        assert sentence in message.text


class Unread(FolderSandbox):
    """Fails when a file is read."""

    async def download_file(self, path: str, *, max_bytes: int | None = None) -> bytes:
        raise AssertionError(path)


async def test_a_huge_image_is_refused_before_it_is_read(tmp_path: Path) -> None:
    context = run_context(tmp_path, sandbox=Unread(tmp_path))
    with (context.folders.uploads / "big.png").open("wb") as file:
        file.truncate(MAX_IMAGE_BYTES + 1)

    _, message = await view(context, f"{UPLOADS}/big.png")

    assert "at most 20971520 can be viewed" in message.text
