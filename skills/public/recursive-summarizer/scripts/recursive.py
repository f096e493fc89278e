#!/usr/bin/env python3
"""Split long texts losslessly and plan their summaries in levels.

count FILE...            tokens of each file and whether recursion is needed
split FILE... --out DIR  write DIR/chunks/*.md and DIR/plan.json
status DIR               list the summaries that can be written now, and those that are too long
Exit code 0: done; 1 (status): work is left; 2: an input is wrong.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _text import fail, read, tokens

DIRECT_TOKENS = 4000
"""A text up to this size is read whole, and no summary may be longer."""
TOLERANCE = 1.25
HEADING = re.compile(
    r"#{1,6}\s+\S|(chapter|part|section)\s+[\divxlc]+\b|第[一二三四五六七八九十百零\d]+[章节回部卷]", re.I
)
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])|(?<=\n)")
LINE = re.compile(r"[^\n]*\n|[^\n]+")
FENCE = re.compile(r"(```|~~~)")


@dataclass(frozen=True)
class Block:
    """A piece of the source that stays together, with the line it begins at."""

    text: str
    line: int
    heading: str | None = None


@dataclass
class Chunk:
    """Consecutive blocks of one file."""

    file: str
    blocks: list[Block]
    path: tuple[str, ...]
    """The headings above its first block."""

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.blocks)

    @property
    def lines(self) -> tuple[int, int]:
        first = self.blocks[0].line
        return first, first + max(self.text.rstrip("\n").count("\n"), 0)


def blocks_of(text: str) -> Iterator[Block]:
    """Yield headings, paragraphs and fenced code; joined they are the text."""
    held: list[str] = []
    start = 1
    fenced = False
    for number, line in enumerate(LINE.findall(text), 1):
        is_heading = not fenced and len(line) < 200 and HEADING.match(line) is not None
        starts_block = is_heading or (
            not fenced
            and held
            and not held[-1].strip()
            and line.strip()
            and any(part.strip() for part in held)
        )
        if starts_block and held:
            yield Block("".join(held), start)
            held, start = [], number
        if is_heading:
            yield Block(line, number, line.strip())
            start = number + 1
            continue
        if FENCE.match(line.lstrip()):
            fenced = not fenced
        held.append(line)
    if held:
        yield Block("".join(held), start)


def pieces(block: Block, limit: int) -> Iterator[Block]:
    """Yield the block, cut at sentences, or at characters where a sentence is too long."""
    if tokens(block.text) <= limit:
        yield block
        return
    line, held = block.line, ""
    cuts = [match.end() for match in SENTENCE_END.finditer(block.text)]
    for begin, end in zip([0, *cuts], [*cuts, len(block.text)], strict=True):
        rest = block.text[begin:end]
        while rest:
            if held and tokens(held + rest) > limit:
                yield Block(held, line)
                line, held = line + held.count("\n"), ""
            taken = next(part for part in (rest, rest[: limit * 4], rest[:limit]) if tokens(part) <= limit)
            held, rest = held + taken, rest[len(taken) :]
    if held:
        yield Block(held, line)


def chunks_of(name: str, text: str, limit: int) -> list[Chunk]:
    """Return the chunks of one file; a heading begins a new chunk once half of the limit is used."""
    chunks: list[Chunk] = []
    trail: list[tuple[int, str]] = []
    size = 0
    for block in (piece for whole in blocks_of(text) for piece in pieces(whole, limit)):
        cost = tokens(block.text)
        is_break = block.heading is not None and size >= limit / 2
        if not chunks or size + cost > limit or is_break:
            moved = _last_headings(chunks[-1]) if chunks else []
            titles = {each.heading.lstrip("# ") for each in moved if each.heading}
            path = tuple(title for _, title in trail if title not in titles)
            chunks.append(Chunk(name, moved, path))
            size = sum(tokens(each.text) for each in moved)
        if block.heading is not None:
            level = len(block.heading) - len(block.heading.lstrip("#")) or 1
            trail = [pair for pair in trail if pair[0] < level] + [(level, block.heading.lstrip("# "))]
        chunks[-1].blocks.append(block)
        size += cost
    return chunks


def _last_headings(chunk: Chunk) -> list[Block]:
    """Take the headings off the chunk's end: they belong to the text that follows."""
    moved: list[Block] = []
    while len(chunk.blocks) > 1 and chunk.blocks[-1].heading is not None:
        moved.insert(0, chunk.blocks.pop())
    return moved


def levels(options: argparse.Namespace, chunk_tokens: list[int]) -> list[list[dict[str, Any]]]:
    """Return the summaries to write, level by level; the last level has one."""
    leaf = max(150, min(800, options.chunk_tokens // 5))
    nodes = [
        {
            "id": f"L1-{number:04}",
            "inputs": [f"chunks/{number:04}.md"],
            "output": f"summaries/L1-{number:04}.md",
            "target": max(40, min(leaf, size // 3)),
        }
        for number, size in enumerate(chunk_tokens, 1)
    ]
    result = [nodes]
    while len(result[-1]) > 1:
        depth, below = len(result) + 1, result[-1]
        groups = -(-len(below) // options.fan_in)
        size = -(-len(below) // groups)  # even groups: no last merge of one
        merged = []
        for number, begin in enumerate(range(0, len(below), size), 1):
            inputs = below[begin : begin + size]
            merged.append(
                {
                    "id": f"L{depth}-{number:04}",
                    "inputs": [node["output"] for node in inputs],
                    "output": f"summaries/L{depth}-{number:04}.md",
                    "target": min(leaf * 2, sum(node["target"] for node in inputs)),
                }
            )
        result.append(merged)
    result[-1][0].update(id="final", output="final.md", target=options.target)
    return result


def split(options: argparse.Namespace) -> int:
    """Write the chunks and the plan."""
    if options.fan_in < 2 or options.chunk_tokens < 200 or not 50 <= options.target <= DIRECT_TOKENS:
        fail(f"use --fan-in >= 2, --chunk-tokens >= 200 and --target from 50 to {DIRECT_TOKENS}")
    if (options.out / "plan.json").exists() and not options.force:
        fail(f"{options.out}/plan.json exists; go on with 'status', or use another --out or --force")
    names = [path.name for path in options.files]
    texts = [
        (path.name if names.count(path.name) == 1 else str(path), read(path, options.encoding))
        for path in options.files
    ]
    chunks = [chunk for name, text in texts for chunk in chunks_of(name, text, options.chunk_tokens)]
    if not any(chunk.text.strip() for chunk in chunks):
        fail("the files have no text")
    folder = options.out / "chunks"
    for old in (options.out / "final.md", *options.out.glob("summaries/*.md"), *folder.glob("*.md")):
        old.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    (options.out / "summaries").mkdir(exist_ok=True)
    described = []
    for number, chunk in enumerate(chunks, 1):
        first, last = chunk.lines
        where = f"{chunk.file} lines {first}-{last}" + (f" | {' > '.join(chunk.path)}" if chunk.path else "")
        (folder / f"{number:04}.md").write_text(f"<!-- {where} -->\n{chunk.text}", encoding="utf-8")
        size = tokens(chunk.text)
        described.append(
            {"file": f"chunks/{number:04}.md", "source": chunk.file, "lines": [first, last], "tokens": size}
        )
    plan = {
        "sources": [
            {"file": str(path), "tokens": tokens(text)}
            for path, (_, text) in zip(options.files, texts, strict=True)
        ],
        "chunks": described,
        "levels": levels(options, [each["tokens"] for each in described]),
    }
    (options.out / "plan.json").write_text(json.dumps(plan, ensure_ascii=False, indent=1), encoding="utf-8")
    shape = " -> ".join(str(len(level)) for level in plan["levels"])
    total = sum(source["tokens"] for source in plan["sources"])
    print(
        f"{total} tokens in {len(chunks)} chunks; summaries per level: {shape}; plan: {options.out}/plan.json"
    )
    print(f"next: recursive.py status {options.out}")
    return 0


def read_plan(folder: Path) -> dict[str, Any]:
    """Return the plan of `split`."""
    try:
        plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        nodes = [node for level in plan["levels"] for node in level]
        if not all({"inputs", "output", "target"} <= set(node) for node in nodes):
            fail(f"{folder}/plan.json was changed; run 'split' again with --force")
    except FileNotFoundError:
        fail(f"{folder} has no plan.json; run 'recursive.py split FILE --out {folder}' first")
    except (ValueError, KeyError, TypeError) as error:
        fail(f"{folder}/plan.json cannot be read: {error!r}; run 'split' again with --force")
    return plan


def status(options: argparse.Namespace) -> int:
    """Print what can be written now."""
    folder: Path = options.folder
    nodes = [node for level in read_plan(folder)["levels"] for node in level]
    written = {}
    for node in nodes:
        if (folder / node["output"]).is_file():
            text = read(folder / node["output"], "utf-8")
            if text.strip():
                written[node["output"]] = tokens(text)
    long = [
        node for node in nodes
        if written.get(node["output"], 0) > min(node["target"] * TOLERANCE, DIRECT_TOKENS)
    ]  # fmt: skip
    blocked = {node["output"] for node in long}
    ready = [
        node for node in nodes
        if node["output"] not in written
        and all(_is_there(folder, name, written, blocked) for name in node["inputs"])
    ]  # fmt: skip
    if options.format == "json":
        result = {
            "done": len(written) == len(nodes) and not long,
            "written": len(written),
            "total": len(nodes),
        }
        print(json.dumps({**result, "ready": ready, "too_long": long}, ensure_ascii=False, indent=1))
    else:
        print(f"{len(written)} of {len(nodes)} summaries written")
        for node in long:
            size = written[node["output"]]
            print(f"too long: {folder / node['output']} has {size} tokens, target {node['target']}")
        for node in ready[: options.limit]:
            inputs = ", ".join(str(folder / name) for name in node["inputs"])
            print(f"write: {inputs} -> {folder / node['output']} ({node['target']} tokens)")
        if len(ready) > options.limit:
            print(f"... and {len(ready) - options.limit} more ready (--limit shows more)")
        if len(written) == len(nodes) and not long:
            print(f"done: {folder / nodes[-1]['output']}")
    return 0 if len(written) == len(nodes) and not long else 1


def _is_there(folder: Path, name: str, written: dict[str, int], blocked: set[str]) -> bool:
    if name.startswith("chunks/"):
        return (folder / name).is_file()
    return name in written and name not in blocked


def count(options: argparse.Namespace) -> int:
    """Print the tokens of each file."""
    total = 0
    for path in options.files:
        size = tokens(read(path, options.encoding))
        total += size
        print(f"{size:>9}  {path}")
    advice = "read it whole" if total <= DIRECT_TOKENS else "split it"
    print(f"{total:>9}  total: {advice} (limit {DIRECT_TOKENS})")
    return 0


def main() -> int:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, function in (("count", count), ("split", split)):
        command = commands.add_parser(name, help=function.__doc__)
        command.add_argument("files", type=Path, nargs="+", metavar="FILE")
        command.add_argument("--encoding", default="utf-8", help="of the files; default utf-8")
        command.set_defaults(run=function)
        if name == "split":
            command.add_argument("--out", type=Path, required=True, help="folder for chunks and plan")
            command.add_argument("--chunk-tokens", type=int, default=3000)
            command.add_argument("--fan-in", type=int, default=6, help="summaries per merge")
            command.add_argument("--target", type=int, default=800, help="tokens of the final summary")
            command.add_argument(
                "--force", action="store_true", help="replace an earlier plan and its summaries"
            )
    command = commands.add_parser("status", help=status.__doc__)
    command.add_argument("folder", type=Path, help="the --out folder of split")
    command.add_argument("--format", choices=("text", "json"), default="text")
    command.add_argument("--limit", type=int, default=12, help="how many items to list")
    command.set_defaults(run=status)
    options = parser.parse_args()
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
