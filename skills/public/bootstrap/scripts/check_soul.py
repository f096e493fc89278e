#!/usr/bin/env python3
"""Check the draft of an agent's SOUL.md: parts, length, behaviour, secrets, weakened safety.

Understands English and Chinese souls. Exit code 0: fine; 1: something to repair or look at; 2: it cannot be
read.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

MAX_CHARS = 100_000
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?")
RESERVED = {"check", "lead-agent"}
PARTS = {
    "what it is for": r"\bfor\b|job|purpose|task|用途|职责|任务|目标",
    "how it works": r"\bwork|process|when |approach|工作|流程|方式|当",
    "how it speaks": r"speak|voice|tone|style|language|说话|语气|风格|表达",
    "limits": r"limit|never|must not|boundar|ask before|限制|边界|绝不|不得|禁止",
    "examples": r"example|示例|例子|对话",
}
TRAITS = re.compile(
    r"\b(helpful|friendly|smart|intelligent|creative|professional|knowledgeable|passionate|curious|empathetic"
    r"|enthusiastic|reliable|proactive|insightful)\b|乐于助人|聪明|友好|专业|富有创造力|热情|可靠",
    re.I,
)
SITUATION = re.compile(
    r"\b(when|if|before|after|unless|instead|whenever)\b|如果|当|之前|遇到|一旦|否则", re.I
)
SECRET = re.compile(
    r"\b(?:AKIA[0-9A-Z]{16}|gh[pousr]_\w{30,}|sk-[\w-]{24,}|xox[abpr]-[\w-]{10,})"
    r"|\b(?:password|api key|token)\s*(?:is|[:=])\s*\S{6,}|密码(?:是|[:：])\s*\S{4,}",
    re.I,
)
UNSAFE = re.compile(
    r"\b(?:ignore|disregard|override)\b.{0,30}\b(?:rules?|instructions?|polic\w+|safety)\b|\bnever refuse\b"
    r"|\bno (?:rules|limits|restrictions)\b|\b(?:claim|pretend) to be (?:a )?human\b"
    r"|\bdeny being an? (?:AI|bot)\b"
    r"|无视.{0,8}(?:规则|指令|安全)|永不拒绝|没有任何限制|假装是(?:真)?人",
    re.I,
)
PLACEHOLDER = re.compile(
    r"\bTODO\b|\bTBD\b|\bNAME OR ROLE\b|\(one sentence:|\(a typical task\)|^- …|You are …", re.M
)


def fail(message: str) -> NoReturn:
    """Report a wrong input and exit with code 2."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def length_of(text: str) -> int:
    """Return the words; three Chinese characters count as two words."""
    wide = len(re.findall(r"[\u4e00-\u9fff]", text))
    return len(re.findall(r"[A-Za-z0-9'’-]+", text)) + wide * 2 // 3


def line_of(text: str, position: int) -> int:
    """Return the line number of a position."""
    return text.count("\n", 0, position) + 1


def part_problems(text: str) -> Iterator[str]:
    """Yield missing parts: a heading must name each."""
    headings = "\n".join(re.findall(r"^#{1,4}\s+(.*)$", text, re.M))
    if not headings:
        yield "there are no headings; use the parts of the template"
        return
    for name, pattern in PARTS.items():
        if not re.search(pattern, headings, re.I):
            yield f"no heading for '{name}'"


def text_problems(text: str) -> Iterator[str]:
    """Yield what to repair in the sentences."""
    words = length_of(text)
    if len(text) > MAX_CHARS:
        yield f"{len(text):,} characters; at most {MAX_CHARS:,} can be saved"
    elif words > 1200:
        yield f"{words} words are too many to be followed; 200 to 700 work best"
    elif words < 120:
        yield f"{words} words say too little; 200 to 700 work best"
    if not re.search(r"\byou\b|你|您", text, re.I):
        yield "it must be written to the agent ('You …', '你…')"
    if len(SITUATION.findall(text)) < 3:
        yield "few situations ('when …', 'if …', '如果…'): say what it does in which case"
    for match in PLACEHOLDER.finditer(text):
        yield f"line {line_of(text, match.start())}: the template's {match[0]!r} is still there"
    for number, line in enumerate(text.splitlines(), 1):
        if len(TRAITS.findall(line)) >= 2 and not SITUATION.search(line):
            yield f"line {number}: adjectives without behaviour: {line.strip()[:80]!r}"
    yield from _repeated(text)


def _repeated(text: str) -> Iterator[str]:
    seen: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        key = re.sub(r"\W+", " ", line.lower()).strip()
        if len(key) < 20:
            continue
        if key in seen:
            yield f"line {number} repeats line {seen[key]}"
        seen.setdefault(key, number)


def safety_problems(text: str) -> Iterator[str]:
    """Yield secrets and sentences that weaken safety; secrets are not repeated."""
    for match in SECRET.finditer(text):
        yield f"line {line_of(text, match.start())}: looks like a secret; souls are stored as plain text"
    for match in UNSAFE.finditer(text):
        before = text[max(0, match.start() - 12) : match.start()].lower()
        if not re.search(r"never|do not|don't|not |不|绝不", before):
            yield f"line {line_of(text, match.start())}: weakens safety: {match[0]!r}"


def main() -> int:
    """Check the draft, print the findings, return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("soul", type=Path, help="the draft of SOUL.md")
    parser.add_argument("--name", help="check this agent name too")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    try:
        text = options.soul.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{options.soul} cannot be read: {error}")
    if not text.strip():
        fail(f"{options.soul} is empty")
    found = [*safety_problems(text), *part_problems(text), *text_problems(text)]
    if options.name is not None and (
        NAME.fullmatch(options.name) is None or options.name.lower() in RESERVED
    ):
        found.append(
            f"name {options.name!r}: use letters, digits and inner hyphens, at most 64, not a reserved word"
        )
    if options.format == "json":
        print(json.dumps({"words": length_of(text), "problems": found}, ensure_ascii=False, indent=2))
    else:
        for each in found:
            print(f"repair: {each}")
        print(f"{length_of(text)} words, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
