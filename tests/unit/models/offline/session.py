"""A session for the offline model: real file tools over a folder, and a `task` tool that nests an agent."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException

from deerflow.models.offline import OfflineChatModel

ROOT = "/mnt/user-data"
UPLOADS = f"{ROOT}/uploads"
CLAIM = re.compile(
    r"(?P<text>[^|]*?)\s*\[citation:[^\]]*:(?P<line>\d+)\]\((?P<link>/[^)\s]*)#L(?P<anchor>\d+)\)"
)


@dataclass
class OfflineSession:
    """A thread's folder, the tools on it, and what the model did with them."""

    folder: Path
    model: OfflineChatModel = field(default_factory=OfflineChatModel)
    presented: list[str] = field(default_factory=list)
    delegated: list[str] = field(default_factory=list)
    page_chars: int = 50_000
    without: frozenset[str] = frozenset()

    def put(self, name: str, text: str | bytes, *, place: str = "uploads") -> str:
        path = self.folder / place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return f"{ROOT}/{place}/{name}"

    def real(self, path: str) -> Path:
        if not path.startswith(f"{ROOT}/"):
            raise ToolException(f"{path} is outside {ROOT}")
        return self.folder / path.removeprefix(f"{ROOT}/")

    def virtual(self, path: Path) -> str:
        return f"{ROOT}/{path.relative_to(self.folder)}"

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
        tools = self.tools(subagents=subagents)
        prompt = (
            f'You lead.\n<subagent_system limit="{limit}">\nbatches\n</subagent_system>'
            if subagents
            else "You."
        )
        agent = create_agent(self.model, tools, system_prompt=prompt)
        listing = "".join(f"- {path} (1.2 KB)\n" for path in uploads)
        block = f"<uploaded_files>\n{listing}</uploaded_files>\n\n" if uploads else ""
        state = await agent.ainvoke(
            {"messages": [*history, HumanMessage(block + question)]}, {"recursion_limit": 150}
        )
        return list(state["messages"])

    def tools(self, *, subagents: bool) -> list[BaseTool]:
        functions = [self.ls, self.glob, self.grep, self.read_file, self.write_file, self.present_files]
        made = [_tool(function) for function in functions if function.__name__ not in self.without]
        task = StructuredTool.from_function(coroutine=self.task, name="task", description="Delegate.")
        return [*made, task] if subagents else made

    async def ls(self, description: str, path: str) -> str:
        """List a folder."""
        return "\n".join(self.virtual(child) for child in sorted(self.real(path).rglob("*")))

    async def glob(self, description: str, pattern: str, path: str, max_results: int = 200) -> str:
        """Find files."""
        found = [self.virtual(child) for child in sorted(self.real(path).glob(pattern)) if child.is_file()]
        return "\n".join(found[:max_results]) or f"No files match {pattern} below {path}."

    async def grep(
        self,
        description: str,
        pattern: str,
        path: str,
        glob: str | None = None,
        literal: bool = False,
        case_sensitive: bool = False,
        max_results: int = 100,
    ) -> str:
        """Search lines."""
        wanted = re.compile(pattern, re.I)
        place = self.real(path)
        hits = []
        for file in [place] if place.is_file() else sorted(place.rglob("*")):
            if file.is_file() and b"\0" not in file.read_bytes():
                for number, line in enumerate(file.read_text(errors="replace").split("\n"), start=1):
                    if wanted.search(line):
                        hits.append(
                            f"{self.virtual(file)}:{number}: {line[:200]}{'…' if len(line) > 200 else ''}"
                        )
        return "\n".join(hits[:max_results]) or f"No lines match below {path}."

    async def read_file(
        self, description: str, path: str, start_line: int | None = None, end_line: int | None = None
    ) -> str:
        """Read lines."""
        file = self.real(path)
        if not file.is_file():
            raise ToolException(f"{path} does not exist; list its parent folder to see what does")
        data = file.read_bytes()
        if b"\0" in data:
            raise ToolException(f"{path} is a binary file of {len(data)} B, not text")
        lines = data.decode(errors="replace").split("\n")
        lines = lines[:-1] if not lines[-1] else lines
        first = start_line or 1
        if not lines:
            return "(empty)"
        if first > len(lines):
            raise ToolException(f"The file has {len(lines)} lines; start_line {first} is behind its end.")
        shown, size = list[str](), 0
        for line in lines[first - 1 : end_line]:
            if shown and size + len(line) > self.page_chars:
                last = first + len(shown) - 1
                note = f"[Lines {first}-{last} of {len(lines)} shown; read on with start_line={last + 1}.]"
                return "\n".join(shown) + f"\n\n{note}"
            shown.append(line)
            size += len(line) + 1
        return "\n".join(shown) + "\n"

    async def write_file(self, description: str, path: str, content: str, append: bool = False) -> str:
        """Write a file."""
        file = self.real(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        return f"Wrote {len(content.encode())} bytes to {path}."

    async def present_files(self, filepaths: list[str]) -> str:
        """Show files."""
        self.presented += filepaths
        return f"The user can now see {', '.join(filepaths)}."

    async def task(self, description: str, prompt: str, subagent_type: str) -> str:
        """Delegate."""
        self.delegated.append(description)
        inner = [tool for tool in self.tools(subagents=False) if tool.name != "present_files"]
        agent = create_agent(self.model, inner, system_prompt="You are a sub-agent.")
        state = await agent.ainvoke({"messages": [HumanMessage(prompt)]}, {"recursion_limit": 150})
        return state["messages"][-1].text

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
                lines = self.real(unquote(claim["link"])).read_text().split("\n")
                number = int(claim["line"])
                is_true = quoted and claim["anchor"] == claim["line"] and quoted in lines[number - 1]
                if not is_true:
                    wrong.append(f"{quoted!r} is not on line {number} of {claim['link']}")
        return wrong


def _tool(function: Any) -> BaseTool:
    return StructuredTool.from_function(
        coroutine=function, name=function.__name__, description=function.__doc__, handle_tool_error=True
    )


def claims_of(report: str) -> list[str]:
    """Return the list items of a report's own sections, which all must be cited."""
    body = re.split(r"\n## (?:Not read|未读|Sources|来源)", report)[0]
    return [line for line in body.split("\n") if line.startswith("- ")]


def calls_of(messages: Sequence[AnyMessage]) -> list[list[str]]:
    """Return the names of the tools called, answer by answer."""
    return [
        [call["name"] for call in message.tool_calls]
        for message in messages
        if isinstance(message, AIMessage) and message.tool_calls
    ]
