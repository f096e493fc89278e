"""A real ACP agent on the SDK's agent side; its first argument says how it behaves.

echo        answers with the prompt, in two pieces
work        plans, calls a tool, writes a file through the client, asks permission, answers
outside     tries to read and write outside its workspace through the client
environment answers with the names and values of its variables
pieces      answers with the variable GIVEN, the first half in a message so long that it is shown at once
model       answers with the model that was chosen for it
beg         asks for permission 1500 times
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from acp import (
    Agent,
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
    RequestError,
    SetSessionConfigOptionResponse,
    plan_entry,
    run_agent,
    start_tool_call,
    update_agent_message_text,
    update_plan,
    update_tool_call,
)
from acp.schema import PermissionOption, SessionConfigOptionSelect, ToolCallUpdate

OPTIONS = [
    PermissionOption(option_id="always", name="Always", kind="allow_always"),
    PermissionOption(option_id="once", name="Once", kind="allow_once"),
    PermissionOption(option_id="no", name="No", kind="reject_once"),
]


class ScriptedAgent(Agent):
    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._client: Any = None
        self._cwd = ""
        self._servers: list[Any] = []
        self._chosen = "none"

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **more: Any) -> InitializeResponse:
        return InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd: str, **more: Any) -> NewSessionResponse:
        self._cwd = cwd
        self._servers = more.get("mcp_servers") or []
        option = SessionConfigOptionSelect.model_validate(
            {
                "type": "select",
                "id": "m",
                "name": "Model",
                "category": "model",
                "currentValue": "small",
                "options": [{"value": "small", "name": "Small"}, {"value": "large", "name": "Large"}],
            }
        )
        return NewSessionResponse(session_id="s1", config_options=[option])

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **more: Any
    ) -> SetSessionConfigOptionResponse:
        self._chosen = str(value)
        return SetSessionConfigOptionResponse(config_options=[])

    async def prompt(self, session_id: str, prompt: list[Any], **more: Any) -> PromptResponse:
        await getattr(self, f"_{self._mode}", self._echo)(prompt[0].text)
        return PromptResponse(stop_reason="end_turn")

    async def cancel(self, session_id: str, **more: Any) -> None:
        """Pay no attention."""

    async def _say(self, text: str) -> None:
        await self._client.session_update("s1", update_agent_message_text(text))

    async def _echo(self, text: str) -> None:
        await self._say("you said: ")
        await self._say(text)

    async def _work(self, text: str) -> None:
        await self._client.session_update(
            "s1", update_plan([plan_entry("write it down", status="in_progress")])
        )
        await self._client.session_update("s1", start_tool_call("c1", "write report", status="pending"))
        path = str(Path(self._cwd) / "notes" / "report.md")
        await self._client.write_text_file(session_id="s1", path=path, content=f"# {text}\nsecond\n")
        second = await self._client.read_text_file(session_id="s1", path=path, line=2, limit=1)
        await self._client.session_update("s1", update_tool_call("c1", status="completed"))
        asked = await self._client.request_permission(
            session_id="s1", tool_call=ToolCallUpdate(tool_call_id="c2", title="rm -rf /"), options=OPTIONS
        )
        chosen = getattr(asked.outcome, "option_id", "cancelled")
        await self._say(f"{path} has {second.content.strip()!r}, permission: {chosen}")

    async def _outside(self, text: str) -> None:
        (Path(self._cwd) / "link").symlink_to("/")
        tried = []
        for path in ("/etc/hostname", "../secret", f"{self._cwd}/link/etc/hostname", "a\0b"):
            try:
                await self._client.read_text_file(session_id="s1", path=path)
                tried.append("read")
            except RequestError as error:
                tried.append(str(error))
        try:
            await self._client.write_text_file(session_id="s1", path="/tmp/acp-outside", content="x")
            tried.append("written")
        except RequestError as error:
            tried.append(str(error))
        await self._say(", ".join(tried))

    async def _environment(self, text: str) -> None:
        await self._say("\n".join(f"{name}={value}" for name, value in sorted(os.environ.items())))

    async def _pieces(self, text: str) -> None:
        given = os.environ["GIVEN"]
        await self._say("." * 5000 + given[:8])
        await self._say(given[8:])

    async def _mcp(self, text: str) -> None:
        shown = [server.model_dump(mode="json", exclude_none=True) for server in self._servers]
        await self._say(json.dumps(shown, sort_keys=True))

    async def _model(self, text: str) -> None:
        await self._say(self._chosen)

    async def _beg(self, text: str) -> None:
        wish = ToolCallUpdate(tool_call_id="c", title="more")
        asked = [
            await self._client.request_permission(session_id="s1", tool_call=wish, options=OPTIONS)
            for _ in range(1500)
        ]
        granted = sum(getattr(each.outcome, "option_id", "") == "once" for each in asked)
        await self._say(f"{granted} granted")


if __name__ == "__main__":
    asyncio.run(run_agent(ScriptedAgent(sys.argv[1])))
