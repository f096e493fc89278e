#!/usr/bin/env python3
"""Check an issue tree written as an indented Markdown list, and print the work plan.

A line is '- text -> analysis [high|medium|low]'; two spaces of indent are one level; analysis and priority
belong to leaves. Exit code 0: sound; 1: something to repair; 2: it cannot be read.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

LINE = re.compile(r"^(\s*)[-*]\s+(.*\S)\s*$")
PRIORITY = re.compile(r"\[(high|medium|low)\]\s*$", re.I)
ORDER = ("high", "medium", "low", "")
MAX_DEPTH = 4
COMMON = frozenset(
    ["a", "an", "and", "are", "be", "by", "can", "do", "does", "for", "how", "in", "is", "it", "of", "on",
     "or", "our", "the", "they", "to", "we", "what", "which", "who", "will", "with"]
)  # fmt: skip


@dataclass
class Node:
    """A question of the tree."""

    text: str
    line: int
    analysis: str = ""
    priority: str = ""
    children: list["Node"] = field(default_factory=list)

    def walk(self, depth: int = 1) -> Iterator[tuple["Node", int]]:
        """Yield the node and all below it, with depth."""
        yield self, depth
        for child in self.children:
            yield from child.walk(depth + 1)


def fail(message: str) -> NoReturn:
    """Report a wrong input and exit with code 2."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def parse(text: str, place: str) -> Node:
    """Return the tree's root."""
    roots: list[Node] = []
    stack: list[tuple[int, Node]] = []
    for number, line in enumerate(text.expandtabs(4).splitlines(), 1):
        match = LINE.match(line)
        if match is None:
            if line.strip() and not line.startswith("#"):
                fail(f"{place}:{number}: {line.strip()[:60]!r} is not '- text'")
            continue
        rest = match[2]
        priority = PRIORITY.search(rest)
        rest = PRIORITY.sub("", rest)
        question, _, analysis = rest.partition("->")
        node = Node(question.strip(), number, analysis.strip(), priority[1].lower() if priority else "")
        indent = len(match[1])
        while stack and stack[-1][0] >= indent:
            stack.pop()
        (stack[-1][1].children if stack else roots).append(node)
        stack.append((indent, node))
    if len(roots) != 1:
        fail(f"{place} needs exactly one question at the first level; it has {len(roots)}")
    return roots[0]


def words(text: str) -> set[str]:
    """Return the meaningful words; for Chinese the pairs of characters."""
    latin = {word for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in COMMON}
    wide = re.findall(r"[\u4e00-\u9fff]+", text)
    return latin | {part[number : number + 2] for part in wide for number in range(max(len(part) - 1, 1))}


def problems(root: Node) -> Iterator[str]:
    """Yield what to repair."""
    if not root.text.endswith(("?", "？")):
        yield f"line {root.line}: the root must be a question, it decides what belongs into the tree"
    for node, depth in root.walk():
        count = len(node.children)
        if count == 1:
            yield f"line {node.line}: '{node.text}' has one branch only; split it or merge them"
        if count > 5:
            yield f"line {node.line}: '{node.text}' has {count} branches; group them into 2 to 5"
        if depth > MAX_DEPTH:
            yield f"line {node.line}: level {depth} is too deep; {MAX_DEPTH} are enough"
        if node.children and node.analysis:
            yield f"line {node.line}: an analysis belongs to a leaf, this has branches"
        if not node.children and not node.analysis:
            yield f"line {node.line}: leaf '{node.text}' has no analysis; write '-> how it is answered'"
        for number, one in enumerate(node.children):
            for other in node.children[number + 1 :]:
                a, b = words(one.text), words(other.text)
                if a and b and len(a & b) / min(len(a), len(b)) > 0.6:
                    yield f"lines {one.line} and {other.line} may overlap: '{one.text}' / '{other.text}'"
    if not root.children:
        yield "the tree has no branches"


def plan(root: Node) -> list[Node]:
    """Return the leaves by priority."""
    leaves = [node for node, _ in root.walk() if not node.children]
    return sorted(leaves, key=lambda node: ORDER.index(node.priority))


def mermaid(root: Node) -> str:
    """Return the tree as a Mermaid diagram."""
    lines = ["graph LR"]
    for node, _ in root.walk():
        label = node.text.replace('"', "'")
        lines.append(f'  n{node.line}["{label}"]')
        lines += [f"  n{node.line} --> n{child.line}" for child in node.children]
    return "\n".join(lines)


def main() -> int:
    """Read the tree, print findings and plan, return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tree", type=Path, help="Markdown file with the list")
    parser.add_argument("--format", choices=("text", "json", "mermaid"), default="text")
    options = parser.parse_args()
    try:
        text = options.tree.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{options.tree} cannot be read: {error}")
    root = parse(text, str(options.tree))
    found = list(problems(root))
    leaves = plan(root)
    if options.format == "mermaid":
        print(mermaid(root))
    elif options.format == "json":
        listed = [
            {"question": node.text, "analysis": node.analysis, "priority": node.priority} for node in leaves
        ]
        print(json.dumps({"problems": found, "plan": listed}, ensure_ascii=False, indent=2))
    else:
        for each in found:
            print(f"repair: {each}")
        print("| Priority | Question | Analysis |\n|---|---|---|")
        for node in leaves:
            print(f"| {node.priority or '-'} | {node.text} | {node.analysis or '-'} |")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
