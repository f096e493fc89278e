"""Keeps an agent from overwriting what it has not seen.

Reading a file, or writing it, leaves a mark with the file's hash on the tool's result. A later write must
find the same hash, else somebody (the user, a command, another agent) changed the file in between.
The marks are part of the messages, so they survive a restart, and a summary that drops the reading makes
the agent read again. Appending and new files need no mark.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.types import ToolCall, ToolHandler, ToolResult
from deerflow.context import RunContext
from deerflow.sandbox.base import content_version
from deerflow.tools.edits import EDIT_FILES, edited_paths

READ = "read_file"
WRITE = "write_file"
REPLACE = "str_replace"
MARK = "file_mark"
LARGE_BYTES = 1024 * 1024
"""From this size on a hash takes long enough for others to notice, so it is made in a thread."""
NOT_READ = (
    "Error: {path} exists and you have not read it. Nothing was written. Read it with read_file first, then "
    "write; or choose another name."
)
CHANGED = (
    "Error: {path} has changed since you last read or wrote it. Nothing was written. Read it again with "
    "read_file, then make your change."
)


class ReadBeforeWriteMiddleware(ChainMiddleware):
    """Refuses to change files whose content the agent does not know."""

    after = ("ToolErrorMiddleware",)

    @override
    async def awrap_tool_call(self, request: ToolCall, handler: ToolHandler) -> ToolResult:
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
                return _refused(request, refusal)
        result = await handler(request)
        if not isinstance(result, ToolMessage) or result.status == "error":
            return result
        if call["args"].get("append") and not is_new:
            return result  # it has added to the file without knowing what else is in it
        return _marked(result, {path: await _hash_after(context, call["name"], call["args"], path)})

    async def _edit(self, request: ToolCall, handler: ToolHandler) -> ToolResult:
        """Hold every file of a call against what the agent knows, before any of them changes."""
        context = cast("RunContext", request.runtime.context)
        paths = await asyncio.to_thread(edited_paths, request.tool_call["args"])
        for path in paths:
            present = await context.sandbox.file_version(path)
            refusal = refusal_of(EDIT_FILES, {"path": path}, present, request.state["messages"])
            if refusal is not None:
                return _refused(request, refusal)
        result = await handler(request)
        if not isinstance(result, ToolMessage) or result.status == "error":
            return result
        return _marked(result, {path: await context.sandbox.file_version(path) for path in paths})


def refusal_of(
    tool: str, arguments: Mapping[str, Any], present: str | None, messages: Sequence[AnyMessage]
) -> str | None:
    """Return why a write must not happen; None when it may.

    Args:
        present: The hash of the file as it is; None when there is no such file.
    """
    if present is None or (tool == WRITE and arguments.get("append")):
        return None
    path = arguments["path"]
    known = last_mark(messages, path)
    if known is None:
        return NOT_READ.format(path=path)
    # Edits of one file in one answer run side by side: each changes what the others were compared with.
    if known != present and not (tool == REPLACE and _is_edited_beside(messages, path)):
        return CHANGED.format(path=path)
    return None


def last_mark(messages: Sequence[AnyMessage], path: str) -> str | None:
    """Return the hash with which the agent last saw the file."""
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            for mark in _marks(message):
                if mark.get("path") == path:
                    found = mark.get("hash")
                    return found if isinstance(found, str) else None
    return None


def _marks(message: ToolMessage) -> Iterator[Mapping[str, Any]]:
    """Yield what a result says of files: one mark, or a list of them."""
    found = message.additional_kwargs.get(MARK)
    for mark in found if isinstance(found, list) else [found]:
        if isinstance(mark, Mapping):
            yield mark


def _is_edited_beside(messages: Sequence[AnyMessage], path: str) -> bool:
    last = next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)
    calls = last.tool_calls if last is not None else []
    return len([call for call in calls if call["name"] == REPLACE and call["args"].get("path") == path]) > 1


def _refused(request: ToolCall, refusal: str) -> ToolMessage:
    call = request.tool_call
    return ToolMessage(refusal, tool_call_id=call["id"] or "", name=call["name"], status="error")


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
        if len(written) <= LARGE_BYTES:  # nobody else's change between the write and now may slip in
            return content_version(written)
    return await context.sandbox.file_version(path)
