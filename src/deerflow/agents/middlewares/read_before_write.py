"""Keeps an agent from overwriting content that it has not read.

Reading or writing a file records its hash on the tool result. A later write must find the same hash;
otherwise the user, a command or another agent changed the file in between. The hashes are part of the
messages, so they survive a restart; after a summary removes them, the agent must read the file again.
Appending and creating files need no recorded hash.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, cast

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware, error_result
from deerflow.agents.types import ToolHandler, ToolRequest, ToolResult
from deerflow.config import Settings
from deerflow.context import RunContext
from deerflow.sandbox.base import content_version
from deerflow.tools.edits import EDIT_FILES, edited_paths

READ = "read_file"
WRITE = "write_file"
REPLACE = "str_replace"
MARK = "file_mark"
LARGE_BYTES = 1024 * 1024
"""From this size on, hashing would block the event loop noticeably, so it runs in a thread."""
NOT_READ = (
    "Error: {path} exists and you have not read it. Nothing was written. Read it with read_file first, then "
    "write; or choose another name."
)
CHANGED = (
    "Error: {path} has changed since you last read or wrote it. Nothing was written. Read it again with "
    "read_file, then make your change."
)


class ReadBeforeWriteMiddleware(ChainMiddleware):
    """Rejects changes to files whose current content the agent has not read."""

    before = ("ToolOutputBudgetMiddleware",)

    @classmethod
    def from_settings(cls, settings: Settings) -> Self | None:
        return cls() if settings.read_before_write.enabled else None

    @override
    async def awrap_tool_call(self, request: ToolRequest, handler: ToolHandler) -> ToolResult:
        call = request.tool_call
        if call["name"] == EDIT_FILES:
            return await self._edit(request, handler)
        path = call["args"].get("path")
        if call["name"] not in (READ, WRITE, REPLACE) or not isinstance(path, str):
            return await handler(request)
        context = cast("RunContext", request.runtime.context)
        is_new = False
        if call["name"] != READ:
            present = await context.sandbox.file_version(path)
            is_new = present is None
            refusal = refusal_of(call["name"], call["args"], present, request.state["messages"])
            if refusal is not None:
                return error_result(request.tool_call, refusal)
        result = await handler(request)
        if not isinstance(result, ToolMessage) or result.status == "error":
            return result
        if call["args"].get("append") and not is_new:
            return result  # no mark: the agent appended without having read the rest
        return _marked(result, {path: await _hash_after(context, call["name"], call["args"], path)})

    async def _edit(self, request: ToolRequest, handler: ToolHandler) -> ToolResult:
        """Check every file of a call before any of them changes."""
        context = cast("RunContext", request.runtime.context)
        paths = await asyncio.to_thread(edited_paths, request.tool_call["args"])
        for path in paths:
            present = await context.sandbox.file_version(path)
            refusal = refusal_of(EDIT_FILES, {"path": path}, present, request.state["messages"])
            if refusal is not None:
                return error_result(request.tool_call, refusal)
        result = await handler(request)
        if not isinstance(result, ToolMessage) or result.status == "error":
            return result
        return _marked(result, {path: await context.sandbox.file_version(path) for path in paths})


def refusal_of(
    tool: str, arguments: Mapping[str, Any], present: str | None, messages: Sequence[AnyMessage]
) -> str | None:
    """Return why a write is rejected; None if it is allowed.

    Args:
        present: The file's current hash; None if it does not exist.
    """
    if present is None or (tool == WRITE and arguments.get("append")):
        return None
    path = arguments["path"]
    known = last_mark(messages, path)
    if known is None:
        return NOT_READ.format(path=path)
    # Parallel edits of one file in one response each change the hash that the others are compared with.
    if known != present and not (tool == REPLACE and _is_edited_in_parallel(messages, path)):
        return CHANGED.format(path=path)
    return None


def last_mark(messages: Sequence[AnyMessage], path: str) -> str | None:
    """Return the hash of the file when the agent last read or wrote it."""
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            for mark in _marks(message):
                if mark.get("path") == path:
                    found = mark.get("hash")
                    return found if isinstance(found, str) else None
    return None


def _marks(message: ToolMessage) -> Iterator[Mapping[str, Any]]:
    """Yield the file marks of a result: one mark, or a list of them."""
    found = message.additional_kwargs.get(MARK)
    for mark in found if isinstance(found, list) else [found]:
        if isinstance(mark, Mapping):
            yield mark


def _is_edited_in_parallel(messages: Sequence[AnyMessage], path: str) -> bool:
    last = next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)
    calls = last.tool_calls if last is not None else []
    return len([call for call in calls if call["name"] == REPLACE and call["args"].get("path") == path]) > 1


def _marked(message: ToolMessage, hashes: Mapping[str, str | None]) -> ToolMessage:
    marks = [{"path": path, "hash": hashed} for path, hashed in hashes.items() if hashed is not None]
    if not marks:
        return message
    kwargs = {**message.additional_kwargs, MARK: marks[0] if len(marks) == 1 else marks}
    return message.model_copy(update={"additional_kwargs": kwargs})


async def _hash_after(context: RunContext, tool: str, arguments: Mapping[str, Any], path: str) -> str | None:
    content = arguments.get("content")
    if tool == WRITE and isinstance(content, str) and not arguments.get("append"):
        written = content.encode()
        if len(written) <= LARGE_BYTES:  # hash what was written: the file may have been changed since
            return content_version(written)
    return await context.sandbox.file_version(path)
