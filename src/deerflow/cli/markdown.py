"""Render Markdown in the terminal: code stays copyable, and nested lists keep their levels."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import BlockQuote, CodeBlock, ListItem, Markdown
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from typing_extensions import override

_ITEM = re.compile(r"(?P<indent> *)(?P<mark>[-*+]|\d{1,9}[.)])(?P<gap> {1,4})(?=\S)")
_CITATION = re.compile(r"citation:\s*(?=\S)", re.IGNORECASE)
_TOKEN = re.compile(r"`+|~{3,}|\\.|\$\$", re.DOTALL)
_CLOSERS = {r"\(": r"\\\)", r"\[": r"\\\]", "$$": r"\$\$"}
_BLANK_LINE = r"\n[ \t]*\n"
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_FENCE = re.compile(r" *(?P<mark>`{3,}|~{3,})")


class TerminalMarkdown(Markdown):
    """Markdown with code that is never wrapped; print it with `crop=False`."""

    def __init__(self, text: str) -> None:
        super().__init__(with_formulas(with_nested_lists(text)))
        for token in self.parsed:
            _strip_citations(token.children or ())


def _strip_citations(tokens: Sequence[Token]) -> None:
    """Remove the prefix `citation:` from link texts, as the web page does."""
    for link, label in pairwise(tokens):
        if link.type == "link_open" and label.type == "text":
            mark = _CITATION.match(label.content)
            label.content = label.content[mark.end() :] if mark else label.content


def with_nested_lists(text: str) -> str:
    """Return Markdown in which an indented item is nested in the item above it.

    Models indent by two spaces; below `1. ` Markdown requires three and would start a new list otherwise.
    """
    return "\n".join(_nested(text.split("\n")))


def _nested(lines: Iterable[str]) -> Iterator[str]:
    levels: list[tuple[int, int]] = []
    """Open items: the column of the marker in the input, and the column of the content in the output."""
    shift, fence = 0, ""
    for line in lines:
        indent = len(line) - len(line.lstrip(" "))
        opening = _FENCE.match(line)
        item = _ITEM.match(line) if not fence and (levels or indent < 4) else None  # else it is code
        if opening and not fence:
            fence = opening["mark"]
        elif opening and opening["mark"].startswith(fence):
            fence = ""
        if item:
            while levels and levels[-1][0] >= indent:
                levels.pop()
            at = levels[-1][1] if levels else min(indent, 3)
            levels.append((indent, at + len(item["mark"]) + len(item["gap"])))
            shift = at - indent
        elif line.strip() and not indent and not fence:
            levels, shift = [], 0
        yield " " * max(indent + shift, 0) + line.lstrip(" ") if line.strip() else line


def with_formulas(text: str) -> str:
    r"""Return Markdown whose formulas, `\(…\)`, `\[…\]` and `$$…$$` outside of code, keep every character."""
    parts: list[str] = []
    done = at = 0
    following = _Following(text)
    while token := _TOKEN.search(text, at):
        start, at = token.start(), token.end()
        mark = token[0]
        if mark[0] in "`~":
            close = following.find(f"(?<!{mark[0]}){mark}(?!{mark[0]})", at)
            if close is None and len(mark) > 2:
                break  # an unclosed code block
            at = close.end() if close is not None else at
        elif mark in _CLOSERS and (close := following.find(_CLOSERS[mark], at)) is not None:
            gap = following.find(_BLANK_LINE, start)
            if gap is None or gap.start() > close.start():
                parts += [text[done:start], _PUNCTUATION.sub(r"\\\g<0>", text[start : close.end()])]
                done = at = close.end()
    return "".join([*parts, text[done:]])


class _Following:
    """Finds the next match of patterns in a text, scanning the text once per pattern."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._known: dict[str, re.Match[str] | None] = {}

    def find(self, pattern: str, at: int) -> re.Match[str] | None:
        """Return the first match from `at` on; `at` must not decrease."""
        known = self._known.get(pattern)
        if pattern in self._known and (known is None or known.start() >= at):
            return known
        found = self._known[pattern] = re.compile(pattern).search(self._text, at)
        return found


def _lines(
    parts: RenderableType, console: Console, options: ConsoleOptions, *, width: int, style: Style
) -> list[list[Segment]]:
    """Render to lines without padding or cropping them, unlike `Console.render_lines`."""
    rendered = console.render(parts, options.update(width=max(width, 1)))
    return list(Segment.split_lines(Segment.apply_style(rendered, style)))


class _CodeBlock(CodeBlock):
    @override
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        shown = Syntax(code, self.lexer_name, theme=self.theme, background_color="default").highlight(code)
        shown.rstrip()
        shown.no_wrap, shown.overflow = True, "ignore"
        yield shown


class _ListItem(ListItem):
    @override
    def render_bullet(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._render(console, options, " • ", "markdown.item.bullet")

    @override
    def render_number(
        self, console: Console, options: ConsoleOptions, number: int, last_number: int
    ) -> RenderResult:
        mark = f"{number}.".rjust(len(str(last_number)) + 2) + " "
        yield from self._render(console, options, mark, "markdown.item.number")

    def _render(self, console: Console, options: ConsoleOptions, mark: str, style_name: str) -> RenderResult:
        style = console.get_style(style_name, default="none")
        width = options.max_width - len(mark)
        for number, line in enumerate(_lines(self.elements, console, options, width=width, style=self.style)):
            yield Segment(" " * len(mark) if number else mark, style)
            yield from line
            yield Segment.line()


class _BlockQuote(BlockQuote):
    @override
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width - 4
        for line in _lines(self.elements, console, options, width=width, style=self.style):
            yield Segment("▌ ", self.style)
            yield from line
            yield Segment.line()


TerminalMarkdown.elements = {
    **Markdown.elements,
    "fence": _CodeBlock,
    "code_block": _CodeBlock,
    "list_item_open": _ListItem,
    "blockquote_open": _BlockQuote,
}
