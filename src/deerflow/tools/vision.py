"""`view_image`: shows an image of the thread to a model with vision."""

import asyncio
import base64
import posixpath
from pathlib import Path
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.types import Command
from pydantic import BaseModel, Field

from deerflow.tools.define import Runtime, VirtualPath, refuse, tool_of

USER_DATA = "/mnt/user-data"
MAX_IMAGE_BYTES = 20 * 1024 * 1024
EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".gif")
FOLDERS = ("workspace", "uploads", "outputs")


class ViewImageArguments(BaseModel):
    """What `view_image` takes."""

    image_path: VirtualPath = Field(description="The image (jpg, png, webp or gif), as an absolute path.")


@tool_of("view_image", ViewImageArguments, is_safe_to_repeat=True)
async def view_image_tool(*, image_path: str, runtime: Runtime) -> Command[Any]:
    """Look at an image below /mnt/user-data. You see it in the next message. Images on the web must be
    downloaded first.
    """
    path = _checked_path(image_path)
    size = await asyncio.to_thread(_size_on_host, runtime.context.folders.user_data, path)
    _check_size(path, size)
    content = await runtime.context.sandbox.download_file(path)
    _check_size(path, len(content))
    kind = mime_type(content)
    if kind is None:
        raise refuse(f"{path} is not a JPEG, PNG, WebP or GIF image, whatever its name says.")
    image = {"base64": base64.b64encode(content).decode(), "mime_type": kind}
    message = ToolMessage(
        f"The image {path} is in the next message.",
        tool_call_id=runtime.tool_call_id or "",
        name="view_image",
    )
    return Command(update={"viewed_images": {path: image}, "messages": [message]})


def mime_type(content: bytes) -> str | None:
    """Return an image's MIME type by its first bytes; None if it is not supported."""
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "image/webp"
    return None


def _checked_path(path: str) -> str:
    clean = posixpath.normpath(path)
    if not clean.startswith(tuple(f"{USER_DATA}/{folder}/" for folder in FOLDERS)):
        raise refuse(
            f"Images must be below {USER_DATA} (workspace, uploads or outputs); copy it there first."
        )
    if not clean.lower().endswith(EXTENSIONS):
        raise refuse(f"{clean} is not a .jpg, .jpeg, .png, .webp or .gif file; convert it first.")
    return clean


def _size_on_host(user_data: Path, path: str) -> int:
    """Return the file's size before it is read; 0 if it is not on this host."""
    try:
        return (user_data / path.removeprefix(f"{USER_DATA}/")).lstat().st_size
    except OSError:
        return 0


def _check_size(path: str, size: int) -> None:
    if size > MAX_IMAGE_BYTES:
        raise refuse(
            f"{path} has {size} bytes; at most {MAX_IMAGE_BYTES} can be viewed. Scale it down first."
        )
