"""Runs one ACP session with a started agent, using the SDK's connection and messages.

The SDK takes a second to import, so this module is imported on the first call.
"""

import asyncio
from typing import Any, TypeVar

from acp import PROTOCOL_VERSION
from acp.connection import Connection
from acp.exceptions import RequestError
from acp.schema import (
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
    PromptRequest,
    PromptResponse,
    SetSessionConfigOptionSelectRequest,
    SseMcpServer,
    TextContentBlock,
)
from pydantic import BaseModel, ValidationError

from deerflow.acp.base import AcpAnswer, AcpWork, Watch
from deerflow.acp.host import Host
from deerflow.acp.wire import AgentWire, WireLimits
from deerflow.config.extensions import McpServerSettings
from deerflow.errors import AcpError
from deerflow.programs import Program

Answer = TypeVar("Answer", bound=BaseModel)

START_SECONDS = 60
"""Timeout for initializing an agent and opening its session."""


async def converse(process: Program, work: AcpWork, watch: Watch, limits: WireLimits) -> AcpAnswer:
    """Send the prompt to a started agent and return its answer."""
    host = Host(work.workspace, grants=work.agent.auto_approve_permissions, watch=watch)
    conversation = Conversation(process, host, limits)
    try:
        session = await conversation.begin(work)
        stop_reason = await conversation.prompt(session, work.prompt)
    finally:
        await conversation.close()
    return AcpAnswer(host.answer, stop_reason, tuple(host.refused))


class Conversation:
    """A session with one agent; every failure is an `AcpError`."""

    def __init__(self, process: Program, host: Host, limits: WireLimits) -> None:
        self._process = process
        self._wire = AgentWire(process.stdin, process.stdout, limits)
        self._connection = Connection(host, self._wire)

    async def begin(self, work: AcpWork) -> str:
        """Initialize the agent and open a session; return the session id."""
        try:
            async with asyncio.timeout(START_SECONDS) as limit:
                return await self._begin(work)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise AcpError(f"it was not ready after {START_SECONDS} seconds") from error

    async def _begin(self, work: AcpWork) -> str:
        greeting = InitializeRequest(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=ClientCapabilities(
                fs=FileSystemCapabilities(read_text_file=True, write_text_file=True), terminal=False
            ),
            client_info=Implementation(name="deerflow", title="DeerFlow", version="3"),
        )
        ready = await self._ask("initialize", greeting, InitializeResponse)
        if ready.protocol_version != PROTOCOL_VERSION:
            raise AcpError(f"it speaks version {ready.protocol_version} of ACP, we speak {PROTOCOL_VERSION}")
        servers = [_mcp_server(name, server) for name, server in work.mcp_servers.items()]
        wish = NewSessionRequest(
            cwd=str(work.workspace), mcp_servers=servers, field_meta=_meta(work.agent.model)
        )
        session = await self._ask("session/new", wish, NewSessionResponse)
        await self._choose_model(session, work.agent.model)
        return session.session_id

    async def prompt(self, session_id: str, text: str) -> str:
        """Send the prompt, wait until the agent stops, and return the stop reason."""
        request = PromptRequest(session_id=session_id, prompt=[TextContentBlock(type="text", text=text)])
        return (await self._ask("session/prompt", request, PromptResponse)).stop_reason

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def _choose_model(self, session: NewSessionResponse, model: str | None) -> None:
        option = next((each for each in session.config_options or () if each.category == "model"), None)
        if model is None or option is None:
            return
        wish = SetSessionConfigOptionSelectRequest(
            session_id=session.session_id, config_id=option.id, value=model
        )
        await self._ask("session/set_config_option", wish, _Anything)

    async def _ask(self, method: str, request: BaseModel, answer: type[Answer]) -> Answer:
        params = request.model_dump(mode="json", by_alias=True, exclude_none=True)
        try:
            return answer.model_validate(await self._connection.send_request(method, params) or {})
        except RequestError as error:
            raise AcpError(f"it answered {method} with an error: {_explain(error)}") from error
        except ValidationError as error:
            raise AcpError(f"its answer to {method} is not the protocol's") from error
        except ConnectionError as error:  # includes a broken pipe
            raise AcpError(await self._why_it_ended()) from error

    async def _why_it_ended(self) -> str:
        what = self._wire.problem
        code = await self._process.exit_code(is_urgent=what is not None)
        if what is None:
            what = "it closed its output" if code is None else f"it ended with exit code {code}"
        words = self._process.last_words
        return f"{what}; its last words: {words}" if words else what


class _Anything(BaseModel):
    """A response whose content is ignored."""


def _meta(model: str | None) -> dict[str, Any] | None:
    """Return `_meta` with the model, for agents that have no config option for it."""
    return None if model is None else {"model": model}


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


def _explain(error: RequestError) -> str:
    details = error.data.get("details") if isinstance(error.data, dict) else None
    text = f"{error} ({details})" if details else str(error)
    return text[:500]
