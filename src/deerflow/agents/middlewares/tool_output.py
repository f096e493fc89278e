"""Keeps one large tool result from filling the model's context.

The whole result is written to a file of the thread, which the agent can read or search; the conversation gets
its start and end. Results of `read_file` are exempt: they are already paged, and reading the file that
replaced a page would cause a loop.
"""

import re
from typing import Any, Self, cast

from langchain_core.messages import ToolMessage
from langgraph.types import Command
from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.types import ToolHandler, ToolRequest, ToolResult
from deerflow.config import Settings, ToolOutputSettings
from deerflow.context import RunContext
from deerflow.domain import new_id
from deerflow.errors import SandboxError

OUTPUTS = "/mnt/user-data/outputs"
_UNFIT = re.compile(r"[^\w.-]+")
MAX_NAME_CHARS = 60


class ToolOutputBudgetMiddleware(ChainMiddleware):
    """Writes long results to files and replaces them by a synopsis."""

    def __init__(self, *, settings: ToolOutputSettings) -> None:
        super().__init__()
        self._settings = settings

    @classmethod
    def from_settings(cls, settings: Settings) -> Self | None:
        return cls(settings=settings.tool_output) if settings.tool_output.enabled else None

    @override
    async def awrap_tool_call(self, request: ToolRequest, handler: ToolHandler) -> ToolResult:
        result = await handler(request)
        name = request.tool_call["name"]
        limit = self._settings.tool_overrides.get(name, self._settings.externalize_min_chars)
        if not limit or name in self._settings.exempt_tools:
            return result
        context = cast("RunContext", request.runtime.context)
        if isinstance(result, Command):
            return await self._shortened_command(result, limit, context)
        return await self._shortened(result, limit, context)

    async def _shortened_command(
        self, command: Command[Any], limit: int, context: RunContext
    ) -> Command[Any]:
        """Shorten the results inside a command, which tools return that also update the state."""
        update = command.update
        if not isinstance(update, dict) or not isinstance(update.get("messages"), list):
            return command
        messages = [
            await self._shortened(message, limit, context) if isinstance(message, ToolMessage) else message
            for message in update["messages"]
        ]
        return Command(
            graph=command.graph,
            update={**update, "messages": messages},
            resume=command.resume,
            goto=command.goto,
        )

    async def _shortened(self, message: ToolMessage, limit: int, context: RunContext) -> ToolMessage:
        content = message.content
        text = content if isinstance(content, str) else message.text
        if len(text) <= limit or (not isinstance(content, str) and not _is_text(content)):
            return message
        path = f"{OUTPUTS}/{self._settings.storage_subdir}/{file_name(message)}"
        try:
            await context.sandbox.write_file(path, text)
            short = synopsis(text, path, self._settings)
        except SandboxError:
            short = fallback(text, self._settings)
        return message.model_copy(update={"content": short})


def file_name(message: ToolMessage) -> str:
    """Return a file name that is unique in the thread."""
    tool = _UNFIT.sub("_", message.name or "tool")[:MAX_NAME_CHARS].strip(".") or "tool"
    call = _UNFIT.sub("_", message.tool_call_id)[:MAX_NAME_CHARS]
    return f"{tool}-{call or 'call'}-{new_id()[:6]}.txt"


def synopsis(text: str, path: str, settings: ToolOutputSettings) -> str:
    """Return the start and end of `text`, its size, and how to read the rest."""
    head, tail = settings.preview_head_chars, settings.preview_tail_chars
    lines = text.count("\n") + 1
    end = f"\n[…]\n{text[-tail:]}" if tail else ""
    return (
        f"[The result has {len(text)} characters in {lines} lines; all of it is in {path}. Below are its "
        "start and end. Use grep on that file to find a place, or read_file with start_line and end_line.]\n"
        f"{text[:head]}{end}"
    )


def fallback(text: str, settings: ToolOutputSettings) -> str:
    """Return `text` shortened without a file, for when none could be written."""
    if len(text) <= settings.fallback_max_chars:
        return text
    head, tail = settings.fallback_head_chars, settings.fallback_tail_chars
    gone = max(len(text) - head - tail, 0)
    end = text[-tail:] if tail else ""
    return f"{text[:head]}\n[{gone} of {len(text)} characters left out; ask for less at once]\n{end}"


def _is_text(content: list[Any]) -> bool:
    return all(isinstance(block, str) or block.get("type") == "text" for block in content)
