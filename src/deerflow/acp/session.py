"""Runs one ACP session with a started agent, using the SDK's connection and messages.

The host answers the agent's requests by policy: file access is limited to the workspace, permissions follow
the setting, and capabilities that were never offered (terminals, forms) are refused. An invalid message is
rejected or ignored; it is never our failure. The SDK takes a second to import, so this module is imported on
the first call.
"""

import asyncio
import logging
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from acp import PROTOCOL_VERSION
from acp.connection import Connection
from acp.exceptions import RequestError
from acp.schema import (
    AgentPlanUpdate,
    ClientCapabilities,
    EnvVariable,
    FileSystemCapabilities,
    HttpHeader,
    HttpMcpServer,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    McpServerStdio,
    NewSessionRequest,
    NewSessionResponse,
    PermissionOption,
    PromptRequest,
    PromptResponse,
    ReadTextFileRequest,
    ReadTextFileResponse,
    RequestPermissionRequest,
    SessionNotification,
    SetSessionConfigOptionSelectRequest,
    SseMcpServer,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    WriteTextFileRequest,
    WriteTextFileResponse,
)
from pydantic import BaseModel, ValidationError

from deerflow.acp.agents import AcpAnswer, AcpProgress, AcpTask, ProgressListener
from deerflow.acp.wire import AgentWire, WireLimits
from deerflow.config.extensions import McpServerSettings
from deerflow.errors import AcpError, DeerFlowError, PathRefusedError, TooLargeError
from deerflow.programs import Program

logger = logging.getLogger(__name__)

MAX_ANSWER_CHARS = 400_000
MAX_PROGRESS = 1000
"""Maximum number of progress events per call; text chunks of the answer do not count."""
MAX_TITLE_CHARS = 200
MAX_PERMISSIONS = 1000

_GRANTING = ("allow_once", "allow_always")
_REFUSING = ("reject_once", "reject_always")
MAX_FILE_BYTES = 10 * 1024 * 1024

Answer = TypeVar("Answer", bound=BaseModel)

START_SECONDS = 60
"""Timeout for initializing an agent and opening its session."""


async def run_session(
    process: Program, task: AcpTask, watch: ProgressListener, limits: WireLimits
) -> AcpAnswer:
    """Send the prompt to a started agent and return its answer."""
    host = AcpHost(task.workspace, grants=task.agent.auto_approve_permissions, watch=watch)
    session = AcpSession(process, host, limits)
    try:
        session_id = await session.begin(task)
        stop_reason = await session.prompt(session_id, task.prompt)
    finally:
        await session.close()
    return AcpAnswer(host.answer, stop_reason, tuple(host.refused))


class AcpSession:
    """A session with one agent; every failure is an `AcpError`."""

    def __init__(self, process: Program, host: "AcpHost", limits: WireLimits) -> None:
        self._process = process
        self._wire = AgentWire(process.stdin, process.stdout, limits)
        self._connection = Connection(host, self._wire)

    async def begin(self, task: AcpTask) -> str:
        """Initialize the agent and open a session; return the session id."""
        try:
            async with asyncio.timeout(START_SECONDS) as limit:
                return await self._begin(task)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise AcpError(f"it was not ready after {START_SECONDS} seconds") from error

    async def _begin(self, task: AcpTask) -> str:
        initialize = InitializeRequest(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=ClientCapabilities(
                fs=FileSystemCapabilities(read_text_file=True, write_text_file=True), terminal=False
            ),
            client_info=Implementation(name="deerflow", title="DeerFlow", version="3"),
        )
        ready = await self._ask("initialize", initialize, InitializeResponse)
        if ready.protocol_version != PROTOCOL_VERSION:
            raise AcpError(f"it speaks version {ready.protocol_version} of ACP, we speak {PROTOCOL_VERSION}")
        servers = [_mcp_server(name, server) for name, server in task.mcp_servers.items()]
        model = task.agent.model
        meta = None if model is None else {"model": model}  # for agents that have no option for it
        request = NewSessionRequest(cwd=str(task.workspace), mcp_servers=servers, field_meta=meta)
        session = await self._ask("session/new", request, NewSessionResponse)
        option = next((each for each in session.config_options or () if each.category == "model"), None)
        if model is not None and option is not None:
            choice = SetSessionConfigOptionSelectRequest(
                session_id=session.session_id, config_id=option.id, value=model
            )
            await self._ask("session/set_config_option", choice, _IgnoredResponse)
        return session.session_id

    async def prompt(self, session_id: str, text: str) -> str:
        """Send the prompt, wait until the agent stops, and return the stop reason."""
        request = PromptRequest(session_id=session_id, prompt=[TextContentBlock(type="text", text=text)])
        return (await self._ask("session/prompt", request, PromptResponse)).stop_reason

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def _ask(self, method: str, request: BaseModel, answer: type[Answer]) -> Answer:
        params = request.model_dump(mode="json", by_alias=True, exclude_none=True)
        try:
            return answer.model_validate(await self._connection.send_request(method, params) or {})
        except RequestError as error:
            details = error.data.get("details") if isinstance(error.data, dict) else None
            text = f"{error} ({details})" if details else str(error)
            raise AcpError(f"it answered {method} with an error: {text[:500]}") from error
        except ValidationError as error:
            raise AcpError(f"its answer to {method} is not the protocol's") from error
        except ConnectionError as error:  # includes a broken pipe
            raise AcpError(await self._end_reason()) from error

    async def _end_reason(self) -> str:
        reason = self._wire.problem
        code = await self._process.exit_code(is_urgent=reason is not None)
        if reason is None:
            reason = "it closed its output" if code is None else f"it ended with exit code {code}"
        last_output = self._process.last_words
        return f"{reason}; its last output: {last_output}" if last_output else reason


class _IgnoredResponse(BaseModel):
    """A response whose content is ignored."""


def _mcp_server(name: str, server: McpServerSettings) -> McpServerStdio | HttpMcpServer | SseMcpServer:
    """Return an MCP server as the protocol's type."""
    headers = [HttpHeader(name=key, value=value) for key, value in server.headers.items()]
    match server.type:
        case "stdio":
            env = [EnvVariable(name=key, value=value) for key, value in server.env.items()]
            return McpServerStdio(name=name, command=server.command or "", args=list(server.args), env=env)
        case "http":
            return HttpMcpServer(type="http", name=name, url=server.url or "", headers=headers)
        case "sse":
            return SseMcpServer(type="sse", name=name, url=server.url or "", headers=headers)


class AcpHost:
    """Handles the requests and notifications of an agent during one call."""

    def __init__(self, workspace: Path, *, grants: bool, watch: ProgressListener) -> None:
        self._workspace = workspace
        self._grants = grants
        self._watch = watch
        self._messages: list[str] = []
        self._length = 0
        self._reported = 0
        self._titles: dict[str, str] = {}
        self._asked = 0
        self.refused: list[str] = []
        """The steps for which permission was refused."""

    @property
    def answer(self) -> str:
        """The text received so far."""
        return "".join(self._messages).strip()

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
                self._append_message(text)
            case _:
                self._report_update(params)

    def _report_update(self, params: Any) -> None:
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
                self._report("tool_call", title, update.status)
            case AgentPlanUpdate(entries=entries):
                self._report("plan", "\n".join(f"[{entry.status}] {entry.content}" for entry in entries[:50]))

    def _append_message(self, text: str) -> None:
        if self._length >= MAX_ANSWER_CHARS:
            return
        piece = text[: MAX_ANSWER_CHARS - self._length]
        self._length += len(piece)
        if self._length >= MAX_ANSWER_CHARS:
            piece += "\n[the agent said more than is kept]"
        self._messages.append(piece)
        self._watch(AcpProgress("message", piece))

    def _report(
        self, kind: Literal["tool_call", "plan", "permission"], text: str, status: str | None = None
    ) -> None:
        self._reported += 1
        if self._reported <= MAX_PROGRESS:
            self._watch(AcpProgress(kind, text[: MAX_TITLE_CHARS * 10], status))

    def _permission(self, request: RequestPermissionRequest) -> Mapping[str, Any]:
        """Answer by policy; refuse beyond `MAX_PERMISSIONS` requests; cancel if no option matches."""
        self._asked += 1
        title = (request.tool_call.title or request.tool_call.kind or "a step")[:MAX_TITLE_CHARS]
        is_granted = self._grants and self._asked <= MAX_PERMISSIONS
        if not is_granted and len(self.refused) < MAX_PERMISSIONS:
            self.refused.append(title)
        self._report("permission", title, "granted" if is_granted else "refused")
        option = _choose(request.options, _GRANTING if is_granted else _REFUSING)
        if option is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": option.option_id}}

    async def _read(self, request: ReadTextFileRequest) -> ReadTextFileResponse:
        content = await self._in_thread(
            lambda: read_lines(self._workspace, request.path, line=request.line, limit=request.limit)
        )
        return ReadTextFileResponse(content=content or "")

    async def _write(self, request: WriteTextFileRequest) -> WriteTextFileResponse:
        await self._in_thread(lambda: write_text(self._workspace, request.path, request.content))
        return WriteTextFileResponse()

    async def _in_thread(self, work: Callable[[], str | None]) -> str | None:
        try:
            return await asyncio.to_thread(work)
        except DeerFlowError as error:
            raise RequestError.invalid_params({"details": str(error)}) from error
        except OSError as error:
            raise RequestError.invalid_params({"details": error.strerror}) from error


def _choose(options: list[PermissionOption], kinds: tuple[str, ...]) -> PermissionOption | None:
    """Return the option of the most restrictive of these kinds."""
    return next((option for kind in kinds for option in options if option.kind == kind), None)


def read_lines(workspace: Path, path: str, *, line: int | None = None, limit: int | None = None) -> str:
    """Return a text file, or `limit` lines of it starting at line `line`."""
    # O_NONBLOCK: opening a FIFO in the workspace must not block.
    descriptor = os.open(inside(workspace, path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise PathRefusedError(f"{path} is not a file")
        if about.st_size > MAX_FILE_BYTES:
            raise TooLargeError(f"{path} has {about.st_size} bytes; {MAX_FILE_BYTES} may be read at once")
        text = file.read(MAX_FILE_BYTES).decode(errors="replace")
    if line is None and limit is None:
        return text
    first = max(line or 1, 1) - 1
    lines = text.splitlines(keepends=True)
    return "".join(lines[first : None if limit is None else first + limit])


def write_text(workspace: Path, path: str, content: str) -> None:
    """Write a text file and create its parent folders."""
    data = content.encode(errors="replace")
    if len(data) > MAX_FILE_BYTES:
        raise TooLargeError(f"{path} would have {len(data)} bytes; {MAX_FILE_BYTES} may be written at once")
    target = inside(workspace, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and not target.is_file():
        raise PathRefusedError(f"{path} is not a file")
    target.write_bytes(data)


def inside(workspace: Path, path: str) -> Path:
    """Return `path` with links resolved; reject a path outside the workspace."""
    root = workspace.resolve()
    try:
        target = (root / path).resolve()
    except (ValueError, OSError, RuntimeError) as error:
        raise PathRefusedError(f"{path[:200]!r} is no usable path") from error
    if not target.is_relative_to(root):
        raise PathRefusedError(f"{path[:200]} is outside the workspace {root}")
    return target
