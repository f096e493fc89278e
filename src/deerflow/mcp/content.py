"""Converts a tool result to text and files, within limits."""

import asyncio
import base64
import binascii
import json
from typing import Any

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from deerflow.mcp.base import Limits, McpAnswer, McpFile

IN_FILE = "(in the file below)"
"""Replaces the data of a file in the text beside it."""
SHORTEST_REPEATED = 64
_PIECE_CHARS = 4 * 262_144
"""A multiple of four, so that each chunk of base64 can be decoded separately."""


async def answer_of(result: CallToolResult, limits: Limits) -> McpAnswer:
    """Return the usable text and files of a result."""
    found = _Content(limits)
    for block in result.content[: limits.items]:
        await found.take(block)
    if len(result.content) > limits.items:
        found.texts.append(f"[blocks after the first {limits.items} were left out; ask for less at once]")
    if result.structured_content is not None and not found.has_text:
        found.texts.insert(0, json.dumps(result.structured_content, ensure_ascii=False, default=str))
    text = "\n\n".join(found.texts)
    for data in found.file_data:  # servers repeat an image in the structured content or in a text block
        text = text.replace(data, IN_FILE)
    if len(text) > limits.text_chars:
        left = len(text) - limits.text_chars
        text = f"{text[: limits.text_chars]}\n[{left} more characters were left out; ask for less at once]"
    return McpAnswer(text, tuple(found.files), is_error=result.is_error)


class _Content:
    """Collects the texts and files of a result's blocks."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.texts: list[str] = []
        self.files: list[McpFile] = []
        self.file_data: list[str] = []
        """The base64 data of files, if long enough to be distinguished from words."""
        self.has_text = False

    async def take(self, block: Any) -> None:
        """Add a block's content."""
        match block:
            case TextContent(text=text):
                self.texts.append(text)
                self.has_text = self.has_text or not (text == "" or text.isspace())
            case ImageContent(data=data, mime_type=kind) | AudioContent(data=data, mime_type=kind):
                await self._keep(data, kind, "")
            case EmbeddedResource(resource=BlobResourceContents() as blob):
                await self._keep(blob.blob, blob.mime_type or "", str(blob.uri))
            case EmbeddedResource(resource=TextResourceContents() as resource):
                self.texts.append(f"[{resource.uri}]\n{resource.text}")
            case ResourceLink(name=name, uri=uri, description=about):
                self.texts.append(f"[{name}: {uri}]" + (f" {about}" if about else ""))

    async def _keep(self, data: str, kind: str, uri: str) -> None:
        """Add a file, or a line that says why it was left out."""
        if len(data) >= SHORTEST_REPEATED:
            self.file_data.append(data)
        problem, content = None, b""
        if len(self.files) >= self._limits.files:
            problem = f"more than {self._limits.files} files"
        elif len(data) * 3 // 4 > self._limits.file_bytes:
            problem = f"larger than {self._limits.file_bytes} bytes"
        else:
            try:
                content = await _decoded(data)
            except (binascii.Error, ValueError):
                problem = "it is no base64"
        if problem is not None:
            self.texts.append(f"[{uri or kind or 'a file'} was left out: {problem}]")
            return
        self.files.append(
            McpFile(content, kind.lower() or "application/octet-stream", uri.rpartition("/")[2])
        )


async def _decoded(data: str) -> bytes:
    """Decode in chunks, yielding to the event loop in between."""
    pieces = []
    for start in range(0, len(data), _PIECE_CHARS):
        pieces.append(base64.b64decode(data[start : start + _PIECE_CHARS], validate=True))
        await asyncio.sleep(0)
    return b"".join(pieces)
