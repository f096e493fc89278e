"""What was found and where: the lines a sub-agent answers with and the lead reads back."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal
from urllib.parse import quote, unquote

from deerflow.models.offline.sentences import Fragment, Sentence, shortened
from deerflow.models.offline.words import Language

SourceState = Literal["full", "part", "empty", "failed"]

_CITED = re.compile(r"(?P<text>.*?)\[citation:[^\]\n]*:(?P<line>\d+)\]\((?P<link>/[^)\s]*)#L\d+\)")
_STATES: dict[str, SourceState] = {
    "Read in full": "full",
    "Read in part": "part",
    "Empty": "empty",
    "Could not read": "failed",
    "全文已读": "full",
    "部分已读": "part",
    "空文件": "empty",
    "无法读取": "failed",
}
_SOURCE = re.compile(rf"(?P<state>{'|'.join(_STATES)})[:：] ?(?P<path>/.*?)(?: — (?P<detail>.*))?$")
# Kept readable for people and other scripts; only what would end a Markdown link is encoded.
_UNSAFE = re.compile(r"[\s()<>\[\]#?%\"\\`|]")


@dataclass(frozen=True, slots=True)
class CitedSentence:
    """One sentence of a file, with the lines that prove it."""

    path: str
    aspect: str
    fragments: tuple[Fragment, ...]
    cut: bool = False

    @property
    def text(self) -> str:
        return " ".join(fragment.text for fragment in self.fragments)


@dataclass(frozen=True, slots=True)
class Source:
    """A file that was looked at, and how far."""

    path: str
    state: SourceState
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Research:
    """Everything found in some files."""

    findings: tuple[CitedSentence, ...] = ()
    sources: tuple[Source, ...] = ()


def finding(sentence: Sentence, *, path: str, aspect: str) -> CitedSentence:
    """Return a sentence of a file as a finding on an aspect."""
    return CitedSentence(path, aspect, sentence.fragments, sentence.cut)


def citation(path: str, line: int, *, label: str | None = None) -> str:
    """Return the Markdown link that leads to a line of a file."""
    name = re.sub(r"[\[\]\s]", "_", label or PurePosixPath(path).name)
    link = _UNSAFE.sub(lambda match: quote(match.group()), path)
    return f"[citation:{name}:{line}]({link}#L{line})"


def cited(found: CitedSentence, *, label: str | None = None, limit: int | None = None) -> str:
    """Return the sentence with a citation behind the words of each of its lines."""
    parts = []
    for number, fragment in enumerate(found.fragments, start=1):
        text = shortened(fragment.text, limit) if limit else fragment.text
        goes_on = found.cut if number == len(found.fragments) else limit is not None
        is_cut = goes_on or text != fragment.text
        parts.append(f"{text}{' …' if is_cut else ''} {citation(found.path, fragment.line, label=label)}")
        if limit:
            break
    return " ".join(parts)


def labels_for(paths: Iterable[str]) -> dict[str, str]:
    """Return for each path the shortest end of it that no other path has."""
    all_paths = list(dict.fromkeys(paths))
    labels = {}
    for path in all_paths:
        parts = path.strip("/").split("/")
        for size in range(1, len(parts) + 1):
            label = "/".join(parts[-size:])
            if sum(other == path or other.endswith(f"/{label}") for other in all_paths) == 1:
                break
        labels[path] = label
    return labels


def to_text(research: Research, *, aspects: Iterable[str], language: Language) -> str:
    """Write research down as a sub-agent's answer."""
    # A sentence opens it: the harness may put words of its own in front of the first line.
    lines = ["文件中的相关原文：" if language == "zh" else "What the files say, quoted:", ""]
    for aspect in aspects:
        found = [item for item in research.findings if item.aspect == aspect]
        nothing = "没有找到相关内容。" if language == "zh" else "Nothing found."
        lines += [f"### {aspect}", *([f"- {cited(item)}" for item in found] or [nothing]), ""]
    names = {state: name for name, state in _STATES.items() if name.isascii() != (language == "zh")}
    for source in research.sources:
        detail = f" — {source.detail}" if source.detail else ""
        lines.append(f"{names[source.state]}: {source.path}{detail}")
    return "\n".join(lines).strip()


def from_text(text: str) -> Research:
    """Read a sub-agent's answer back; whatever is no finding and no source is passed over."""
    findings, sources, aspect = [], [], ""
    for line in text.split("\n"):
        source = _SOURCE.match(line.strip())
        if line.startswith("### "):
            aspect = line[4:].strip()
        elif line.startswith("- ") and (found := parse_cited(line[2:], aspect=aspect)):
            findings.append(found)
        elif source:
            sources.append(Source(source["path"], _STATES[source["state"]], source["detail"] or ""))
    return Research(tuple(findings), tuple(sources))


def parse_cited(text: str, *, aspect: str) -> CitedSentence | None:
    """Read one cited sentence back."""
    parts = list(_CITED.finditer(text)) if "[citation:" in text else []
    if not parts:
        return None
    fragments = tuple(Fragment(int(part["line"]), part["text"].strip().removesuffix(" …")) for part in parts)
    return CitedSentence(unquote(parts[0]["link"]), aspect, fragments, cut=" … [citation:" in text)
