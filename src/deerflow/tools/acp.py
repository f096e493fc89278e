"""`invoke_acp_agent`: delegates work to an external agent over ACP and publishes its progress."""

import logging
from collections.abc import Mapping
from pathlib import Path

from langchain_core.tools import BaseTool
from pydantic import BaseModel, Field

from deerflow.acp.agents import AcpAgents, AcpAnswer, AcpProgress, missing_package, refusal_note
from deerflow.config.agents import AcpAgentSettings
from deerflow.config.extensions import McpServerSettings
from deerflow.errors import AcpError
from deerflow.observability.logs import StreamRedactor
from deerflow.sandbox.paths import ACP_WORKSPACE
from deerflow.tools.define import PlainText, Runtime, clip_middle, tool_of
from deerflow.tools.shell import LiveOutput

logger = logging.getLogger(__name__)

MAX_ANSWER_CHARS = 50_000
MAX_PROMPT_CHARS = 200_000

DESCRIPTION = """\
Hand work to an agent of another program, which works on its own and reports back.

It works in a folder of its own that you can read at {workspace}, and sees neither this
conversation nor your files: its prompt must say everything, long texts included. Copy what you want to
keep from there to /mnt/user-data.

Agents:
{agents}"""


class AcpArguments(BaseModel):
    """What `invoke_acp_agent` takes."""

    agent: str = Field(min_length=1, description="Which agent, by name.")
    prompt: PlainText = Field(
        min_length=1, max_length=MAX_PROMPT_CHARS, description="The whole task; it sees nothing else."
    )


def acp_tools(
    agents: Mapping[str, AcpAgentSettings],
    env: Mapping[str, str],
    mcp_servers: Mapping[str, McpServerSettings],
) -> list[BaseTool]:
    """Return the tool for the configured ACP agents; empty without agents."""
    if not agents:
        return []
    if hint := missing_package():
        logger.warning("acp_agents are left out: a package is missing, get it with %s", hint)
        return []
    return [make_acp_tool(AcpAgents(agents, env=env, mcp_servers=mcp_servers))]


def make_acp_tool(agents: AcpAgents) -> BaseTool:
    """Return the tool that calls these agents."""

    async def invoke(*, agent: str, prompt: str, runtime: Runtime) -> str:
        workspace = runtime.context.folders.acp_workspace.absolute()
        redact = runtime.context.watch.redact  # the agent may repeat secrets from its environment

        def hide(text: str) -> str:
            return _virtual(redact.known(text), workspace=workspace)

        stream = StreamRedactor(redact)
        with LiveOutput(lambda text: _publish(runtime, agent, AcpProgress("message", hide(text)))) as live:

            def watch(progress: AcpProgress) -> None:
                if progress.kind == "message":
                    live(stream(progress.text))
                else:
                    shown = AcpProgress(progress.kind, hide(progress.text), progress.status)
                    _publish(runtime, agent, shown)

            try:
                answer = await agents.ask(
                    agent.strip(),
                    prompt.replace(ACP_WORKSPACE, str(workspace)),
                    workspace=workspace,
                    watch=watch,
                )
                live(stream.rest())
            except AcpError as error:
                raise AcpError(clip_middle(hide(str(error)), MAX_ANSWER_CHARS)) from error
        return hide(_report(agent.strip(), answer))

    listed = "\n".join(f"- {name}: {description}" for name, description in agents.descriptions.items())
    invoke.__doc__ = DESCRIPTION.format(workspace=ACP_WORKSPACE, agents=listed)
    return tool_of("invoke_acp_agent", AcpArguments)(invoke)


def _report(name: str, answer: AcpAnswer) -> str:
    text = clip_middle(answer.text, MAX_ANSWER_CHARS) or "(no answer)"
    reason = "" if answer.stop_reason == "end_turn" else f"\n\n[It stopped early: {answer.stop_reason}.]"
    note = refusal_note(name, answer.refused).strip()
    return f"{text}{reason}" + (f"\n\n[{note}]" if note else "")


def _virtual(text: str, *, workspace: Path) -> str:
    """Replace the workspace's host path by its path in the sandbox."""
    return text.replace(str(workspace), ACP_WORKSPACE)


def _publish(runtime: Runtime, agent: str, progress: AcpProgress) -> None:
    """Publish messages as output of the call, and steps as `acp_progress` events."""
    event = {"type": "tool_output", "tool_call_id": runtime.tool_call_id, "text": progress.text}
    if progress.kind != "message":
        about = {"agent": agent, "kind": progress.kind, "status": progress.status}
        event = {**event, **about, "type": "acp_progress"}
    runtime.context.publish(event)
