"""Reads a report in Markdown: front matter (`key: value` lines between `---`), then the text as a tree."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _common import stop, stop_missing

try:
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode
except ImportError:
    stop_missing("markdown-it-py")

FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)
Node = Any
"""A `SyntaxTreeNode`: `type`, `children`, `content`, `attrs`."""


@dataclass(frozen=True, slots=True)
class Report:
    """A report and the folder that its pictures are relative to."""

    meta: dict[str, str]
    text: str
    tree: Node
    folder: Path

    @property
    def title(self) -> str:
        """Return the title from the front matter, or the first heading."""
        first = next((node for node in self.tree.children if node.type == "heading"), None)
        return self.meta.get("title") or (plain(first) if first is not None else "Report")

    @property
    def chinese(self) -> bool:
        """Say whether the report is written in Chinese."""
        if "lang" in self.meta:
            return self.meta["lang"].lower().startswith("zh")
        return len(re.findall(r"[\u3400-\u9fff]", self.text)) > len(self.text) * 0.15


def parser() -> MarkdownIt:
    """Return the Markdown parser: CommonMark with tables and strike-through, raw HTML as text."""
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def read_report(path: Path) -> Report:
    """Return the report in a file; stop when it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        stop(f"{path} cannot be read: {error}")
    meta: dict[str, str] = {}
    matter = FRONT_MATTER.match(text)
    if matter:
        for line in matter[1].splitlines():
            key, colon, value = line.partition(":")
            if colon and key.strip():
                meta[key.strip().lower()] = value.strip().strip("\"'")
        text = text[matter.end() :]
    if not text.strip():
        stop(f"{path} has no text")
    return Report(meta, text, SyntaxTreeNode(parser().parse(text)), path.resolve().parent)


def plain(node: Node) -> str:
    """Return the text below a node without its marks."""
    if node.type in {"text", "code_inline", "fence", "code_block"}:
        return str(node.content)
    if node.type in {"softbreak", "hardbreak"}:
        return " "
    if node.type == "image":
        return str(node.content)
    return "".join(plain(child) for child in node.children)


def picture(report: Report, node: Node) -> Path | None:
    """Return the file of a picture below the report's folder, or None when there is none."""
    source = str(node.attrs.get("src", ""))
    file = (report.folder / source).resolve()
    return file if source and "://" not in source and file.is_file() else None
