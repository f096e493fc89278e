"""Turns what a tool returned into text and files, within limits."""

import base64
import binascii
import json
from collections.abc import Iterable
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


def answer_of(result: CallToolResult, limits: Limits) -> McpAnswer:
    """Return an answer with all that a model or a person can use of a result."""
    texts: list[str] = []
    files: list[McpFile] = []
    for block in result.content:
        _take(block, texts, files, limits)
    if result.structured_content is not None and not _has_text(result.content):
        texts.insert(0, json.dumps(result.structured_content, ensure_ascii=False, default=str))
    text = "\n\n".join(texts)
    if len(text) > limits.text_chars:
        left = len(text) - limits.text_chars
        text = f"{text[: limits.text_chars]}\n[{left} more characters were left out; ask for less at once]"
    return McpAnswer(text, tuple(files), is_error=result.is_error)


def _take(block: Any, texts: list[str], files: list[McpFile], limits: Limits) -> None:
    match block:
        case TextContent(text=text):
            texts.append(text)
        case ImageContent(data=data, mime_type=kind) | AudioContent(data=data, mime_type=kind):
            _keep(data, kind, "", texts, files, limits)
        case EmbeddedResource(resource=BlobResourceContents() as blob):
            _keep(blob.blob, blob.mime_type or "", str(blob.uri), texts, files, limits)
        case EmbeddedResource(resource=TextResourceContents() as resource):
            texts.append(f"[{resource.uri}]\n{resource.text}")
        case ResourceLink(name=name, uri=uri, description=about):
            texts.append(f"[{name}: {uri}]" + (f" {about}" if about else ""))


def _keep(data: str, kind: str, uri: str, texts: list[str], files: list[McpFile], limits: Limits) -> None:
    """Add a file, or a line on why it is not there."""
    what = uri or kind or "a file"
    if len(files) >= limits.files:
        texts.append(f"[{what} was left out: more than {limits.files} files]")
        return
    if len(data) * 3 // 4 > limits.file_bytes:
        texts.append(f"[{what} was left out: larger than {limits.file_bytes} bytes]")
        return
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        texts.append(f"[{what} was left out: it is no base64]")
        return
    files.append(McpFile(content, kind.lower() or "application/octet-stream", uri.rpartition("/")[2]))


def _has_text(content: Iterable[Any]) -> bool:
    return any(isinstance(block, TextContent) and block.text.strip() for block in content)
