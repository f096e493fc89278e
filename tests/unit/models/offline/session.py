"""A session for the offline model: the real tools over a folder, and a `task` tool that nests an agent."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.tools import BaseTool, StructuredTool
from support.sandboxes import FolderSandbox, run_context
from typing_extensions import override

from deerflow.context import RunContext
from deerflow.models.offline import OfflineChatModel
from deerflow.sandbox import CommandResult
from deerflow.tools import glob_tool, python_tool, read_file_tool, write_file_tool
from deerflow.tools.search_files import search_files_tool

ROOT = "/mnt/user-data"
UPLOADS = f"{ROOT}/uploads"
CLAIM = re.compile(
    r"(?P<text>[^|]*?)\s*\[citation:[^\]]*:(?:p?\d+)\]\((?P<link>/[^)\s#]*)#(?P<at>L|page=)(?P<number>\d+)\)"
)


class MappedSandbox(FolderSandbox):
    """Runs commands with the virtual paths replaced, as the local sandbox does."""

    @override
    async def execute_command(self, command: str, **options: object) -> CommandResult:  # type: ignore[override]
        return await super().execute_command(command.replace(ROOT, str(self.root)), **options)  # type: ignore[arg-type]


@dataclass
class OfflineSession:
    """A thread's folder, the tools on it, and what the model did with them."""

    folder: Path
    model: OfflineChatModel = field(default_factory=OfflineChatModel)
    presented: list[str] = field(default_factory=list)
    delegated: list[str] = field(default_factory=list)
    without: frozenset[str] = frozenset()

    def put(self, name: str, text: str | bytes, *, place: str = "uploads") -> str:
        path = self.real(f"{ROOT}/{place}/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return f"{ROOT}/{place}/{name}"

    @property
    def context(self) -> RunContext:
        context = run_context(self.folder)
        return run_context(self.folder, sandbox=MappedSandbox(context.folders.user_data))

    def real(self, path: str) -> Path:
        return self.context.folders.user_data / path.removeprefix(f"{ROOT}/")

    async def ask(
        self,
        question: str,
        *,
        uploads: Sequence[str] = (),
        history: Sequence[AnyMessage] = (),
        subagents: bool = True,
        limit: int = 3,
    ) -> list[AnyMessage]:
        """Run one turn and return all messages of the thread."""
        prompt = f'<subagent_system limit="{limit}">\n</subagent_system>' if subagents else "You."
        agent = create_agent(
            self.model, self.tools(subagents=subagents), system_prompt=prompt, context_schema=RunContext
        )
        listing = "".join(f"- {path} (1.2 KB)\n" for path in uploads)
        block = f"<uploaded_files>\n{listing}</uploaded_files>\n\n" if uploads else ""
        state = await agent.ainvoke(
            {"messages": [*history, HumanMessage(block + question)]},
            {"recursion_limit": 150},
            context=self.context,
        )
        return list(state["messages"])

    def tools(self, *, subagents: bool) -> list[BaseTool]:
        present = StructuredTool.from_function(coroutine=self.present_files, description="Show files.")
        task = StructuredTool.from_function(coroutine=self.task, description="Delegate.")
        tools = [glob_tool, search_files_tool, read_file_tool, write_file_tool, python_tool, present]
        tools += [task] if subagents else []
        return [tool for tool in tools if tool.name not in self.without]

    async def present_files(self, filepaths: list[str]) -> str:
        self.presented += filepaths
        return f"The user can now see {', '.join(filepaths)}."

    async def task(self, description: str, prompt: str, subagent_type: str) -> str:
        self.delegated.append(description)
        inner = [tool for tool in self.tools(subagents=False) if tool.name != "present_files"]
        agent = create_agent(self.model, inner, system_prompt="A sub-agent.", context_schema=RunContext)
        state = await agent.ainvoke({"messages": [HumanMessage(prompt)]}, context=self.context)
        return str(state["messages"][-1].text)

    def report(self) -> str:
        """Return the one report that was presented."""
        assert len(self.presented) == 1
        return self.real(self.presented[0]).read_text()

    def false_claims(self, text: str) -> list[str]:
        """Return the citations of `text` whose line does not hold the words quoted before it."""
        wrong = []
        for line in text.split("\n"):
            for claim in CLAIM.finditer(line):
                quoted = claim["text"].strip().removeprefix("- ").removesuffix("…").strip()
                file = self.real(unquote(claim["link"]))
                if claim["at"] == "page=":
                    continue  # the lines of a document are not those of its file
                lines = file.read_text().split("\n")
                number = int(claim["number"])
                if not quoted or quoted not in lines[number - 1]:
                    wrong.append(f"{quoted!r} is not on line {number} of {claim['link']}")
        return wrong


def calls_of(messages: Sequence[AnyMessage]) -> list[list[str]]:
    """Return the names of the tools called, answer by answer."""
    return [
        [call["name"] for call in message.tool_calls]
        for message in messages
        if isinstance(message, AIMessage) and message.tool_calls
    ]
