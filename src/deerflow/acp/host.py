"""Client side of an ACP session: receives the agent's progress and answers its requests by policy.

File access is limited to the workspace, permissions follow the setting, and capabilities that were never
offered (terminals, forms) are refused. An invalid message is rejected or ignored; it is never our failure.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from acp.exceptions import RequestError
from acp.schema import (
    AgentPlanUpdate,
    PermissionOption,
    ReadTextFileRequest,
    ReadTextFileResponse,
    RequestPermissionRequest,
    SessionNotification,
    ToolCallProgress,
    ToolCallStart,
    WriteTextFileRequest,
    WriteTextFileResponse,
)
from pydantic import ValidationError

from deerflow.acp.base import AcpProgress, Watch
from deerflow.acp.files import read_lines, write_text
from deerflow.errors import DeerFlowError

logger = logging.getLogger(__name__)

MAX_ANSWER_CHARS = 400_000
MAX_PROGRESS = 1000
"""Maximum number of progress events per call; text chunks of the answer do not count."""
MAX_TITLE_CHARS = 200
MAX_PERMISSIONS = 1000

_GRANTING = ("allow_once", "allow_always")
_REFUSING = ("reject_once", "reject_always")


class Host:
    """Handles the requests and notifications of an agent during one call."""

    def __init__(self, workspace: Path, *, grants: bool, watch: Watch) -> None:
        self._workspace = workspace
        self._grants = grants
        self._watch = watch
        self._said: list[str] = []
        self._length = 0
        self._shown = 0
        self._titles: dict[str, str] = {}
        self._asked = 0
        self.refused: list[str] = []
        """The steps for which permission was refused."""

    @property
    def answer(self) -> str:
        """The text received so far."""
        return "".join(self._said).strip()

    async def __call__(self, method: str, params: Any, is_notification: bool) -> Any:
        """Handle one request or notification of the agent."""
        if is_notification:
            if method == "session/update":
                self._update(params)
            return None
        try:
            match method:
                case "session/request_permission":
                    return self._permission(RequestPermissionRequest.model_validate(params))
                case "fs/read_text_file":
                    return await self._read(ReadTextFileRequest.model_validate(params))
                case "fs/write_text_file":
                    return await self._write(WriteTextFileRequest.model_validate(params))
        except ValidationError as error:
            raise RequestError.invalid_params({"details": str(error)[:MAX_TITLE_CHARS]}) from error
        raise RequestError.method_not_found(method[:MAX_TITLE_CHARS])

    def _update(self, params: Any) -> None:
        match params:  # text chunks are frequent: they skip the pydantic validation
            case {"update": {"sessionUpdate": "agent_message_chunk", "content": {"text": str(text)}}}:
                self._hear(text)
            case _:
                self._step(params)

    def _step(self, params: Any) -> None:
        try:
            update = SessionNotification.model_validate(params).update
        except ValidationError:
            logger.debug("an update of an agent makes no sense and is passed over")
            return
        match update:
            case ToolCallStart() | ToolCallProgress():
                title = update.title or self._titles.get(update.tool_call_id, "a step")
                if len(self._titles) < MAX_PROGRESS:
                    self._titles[update.tool_call_id] = title
                self._show("tool_call", title, update.status)
            case AgentPlanUpdate(entries=entries):
                self._show("plan", "\n".join(f"[{entry.status}] {entry.content}" for entry in entries[:50]))

    def _hear(self, text: str) -> None:
        if self._length >= MAX_ANSWER_CHARS:
            return
        piece = text[: MAX_ANSWER_CHARS - self._length]
        self._length += len(piece)
        if self._length >= MAX_ANSWER_CHARS:
            piece += "\n[the agent said more than is kept]"
        self._said.append(piece)
        self._watch(AcpProgress("message", piece))

    def _show(
        self, kind: Literal["tool_call", "plan", "permission"], text: str, status: str | None = None
    ) -> None:
        self._shown += 1
        if self._shown <= MAX_PROGRESS:
            self._watch(AcpProgress(kind, text[: MAX_TITLE_CHARS * 10], status))

    def _permission(self, request: RequestPermissionRequest) -> Mapping[str, Any]:
        """Answer by policy; refuse beyond `MAX_PERMISSIONS` requests; cancel if no option matches."""
        self._asked += 1
        title = (request.tool_call.title or request.tool_call.kind or "a step")[:MAX_TITLE_CHARS]
        is_granted = self._grants and self._asked <= MAX_PERMISSIONS
        if not is_granted and len(self.refused) < MAX_PERMISSIONS:
            self.refused.append(title)
        self._show("permission", title, "granted" if is_granted else "refused")
        option = _choose(request.options, _GRANTING if is_granted else _REFUSING)
        if option is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": option.option_id}}

    async def _read(self, request: ReadTextFileRequest) -> ReadTextFileResponse:
        content = await self._file_work(
            lambda: read_lines(self._workspace, request.path, line=request.line, limit=request.limit)
        )
        return ReadTextFileResponse(content=content or "")

    async def _write(self, request: WriteTextFileRequest) -> WriteTextFileResponse:
        await self._file_work(lambda: write_text(self._workspace, request.path, request.content))
        return WriteTextFileResponse()

    async def _file_work(self, work: Callable[[], str | None]) -> str | None:
        try:
            return await asyncio.to_thread(work)
        except DeerFlowError as error:
            raise RequestError.invalid_params({"details": str(error)}) from error
        except OSError as error:
            raise RequestError.invalid_params({"details": error.strerror}) from error


def _choose(options: list[PermissionOption], kinds: tuple[str, ...]) -> PermissionOption | None:
    """Return the option of the most restrictive of these kinds."""
    return next((option for kind in kinds for option in options if option.kind == kind), None)
