"""Runs external ACP agents: starts the process, sends the prompt, and terminates it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from deerflow.acp.wire import WireLimits
from deerflow.config.agents import AcpAgentSettings
from deerflow.config.extensions import McpServerSettings
from deerflow.config.extras import install_hint
from deerflow.config.secrets import hidden_values
from deerflow.errors import AcpError, NotFoundError, ProgramError
from deerflow.observability.logs import Redactor
from deerflow.programs import Program, declared_environment, kill_orphans, running_program

logger = logging.getLogger(__name__)

MAX_RUNNING = 8
"""Maximum number of ACP agents running at once; further calls wait."""
MAX_SHOWN_REFUSALS = 5


@dataclass(frozen=True, slots=True)
class AcpTask:
    """The prompt of an agent, with its workspace and MCP servers."""

    agent: AcpAgentSettings
    prompt: str
    workspace: Path
    mcp_servers: Mapping[str, McpServerSettings] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AcpProgress:
    """One progress event of an agent."""

    kind: Literal["message", "tool_call", "plan", "permission"]
    text: str
    status: str | None = None


ProgressListener = Callable[[AcpProgress], None]
"""Callback for an agent's progress events."""


@dataclass(frozen=True, slots=True)
class AcpAnswer:
    """The answer of an agent."""

    text: str
    stop_reason: str
    refused: tuple[str, ...] = ()
    """The steps for which permission was refused."""


RunSession = Callable[[Program, AcpTask, ProgressListener, WireLimits], Awaitable[AcpAnswer]]
"""Runs the protocol with a started agent."""


class AcpAgents:
    """The agents of `acp_agents`; each call starts a new process with a new session."""

    def __init__(
        self,
        agents: Mapping[str, AcpAgentSettings],
        *,
        env: Mapping[str, str],
        mcp_servers: Mapping[str, McpServerSettings] | None = None,
        limits: WireLimits | None = None,
    ) -> None:
        self._agents = agents
        self._env = env
        self._mcp_servers = mcp_servers or {}
        self._limits = limits or WireLimits()
        self._run_session: RunSession | None = None
        self._slots = asyncio.Semaphore(MAX_RUNNING)

    @property
    def descriptions(self) -> dict[str, str]:
        """The description of each agent, by name."""
        return {name: agent.description for name, agent in self._agents.items()}

    async def ask(self, name: str, prompt: str, *, workspace: Path, watch: ProgressListener) -> AcpAnswer:
        """Run an agent in `workspace`; a failure is an `AcpError` that includes the output so far."""
        agent = self._agents.get(name)
        if agent is None:
            raise NotFoundError("ACP agent", name, known=self._agents)
        await asyncio.to_thread(workspace.mkdir, parents=True, exist_ok=True)
        run_session = await self._load_session()
        task = AcpTask(agent, prompt, workspace, self._servers_of(agent))
        progress = _ProgressRecorder(watch, Redactor(_secrets(task)))
        async with self._slots:
            try:
                async with asyncio.timeout(agent.timeout_seconds) as limit:
                    command, env = (agent.command, *agent.args), declared_environment(self._env, agent.env)
                    async with running_program(command, env=env, cwd=workspace) as process:
                        return await run_session(process, task, progress.record, self._limits)
            except TimeoutError as error:
                if not limit.expired():
                    raise
                reason = f"still working after {agent.timeout_seconds:g} seconds"
                raise progress.failure(name, reason) from error
            except (AcpError, ProgramError) as error:
                raise progress.failure(name, str(error)) from error

    def _servers_of(self, agent: AcpAgentSettings) -> dict[str, McpServerSettings]:
        """Return the MCP servers that the agent may use; skips disabled and unknown ones."""
        found = {name: self._mcp_servers.get(name) for name in agent.mcp_servers}
        for name in (name for name, server in found.items() if server is None):
            logger.warning("acp_agents: no MCP server %s; there are: %s", name, ", ".join(self._mcp_servers))
        return {name: server for name, server in found.items() if server is not None and server.enabled}

    async def _load_session(self) -> RunSession:
        """Kill orphaned agents and import the protocol module, once."""
        if self._run_session is None:
            self._run_session = await asyncio.to_thread(_import_session)
        return self._run_session


def _import_session() -> RunSession:
    kill_orphans()
    from deerflow.acp.session import run_session  # noqa: PLC0415 - an extra, and it takes a second to import

    return run_session


class _ProgressRecorder:
    """Forwards progress to the caller and records it for the error message if the agent fails."""

    def __init__(self, watch: ProgressListener, redact: Redactor) -> None:
        self._watch = watch
        self._redact = redact
        self._messages: list[str] = []
        self._refused: list[str] = []

    def record(self, progress: AcpProgress) -> None:
        if progress.kind == "message":
            self._messages.append(progress.text)
        elif progress.kind == "permission" and progress.status == "refused":
            self._refused.append(progress.text)
        self._watch(progress)

    def failure(self, name: str, reason: str) -> AcpError:
        text = "".join(self._messages).strip()
        found = f"\n\nIt said so far:\n{text}" if text else ""
        why = self._redact(reason)  # a program's last output often contains its key
        return AcpError(f"agent '{name}' failed: {why}.{refusal_note(name, self._refused)}{found}")


def _secrets(task: AcpTask) -> Iterator[str]:
    """Yield the secrets that an agent receives, for redaction."""
    yield from hidden_values(task.agent.model_dump())
    for server in task.mcp_servers.values():
        yield from hidden_values(server.model_dump())


def refusal_note(name: str, refused: Sequence[str]) -> str:
    """Return a sentence about the permissions that the agent was refused; empty if there are none."""
    if not refused:
        return ""
    shown = ", ".join(refused[:MAX_SHOWN_REFUSALS])
    more = f" and {len(refused) - MAX_SHOWN_REFUSALS} more" if len(refused) > MAX_SHOWN_REFUSALS else ""
    return (
        f" Refused for lack of permission: {shown}{more}; an operator may set "
        f"acp_agents.{name}.auto_approve_permissions."
    )


def missing_package() -> str | None:
    """Return the command that installs the ACP SDK; None if it is installed."""
    return None if find_spec("acp") else install_hint("acp")
