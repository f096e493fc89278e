"""The parts of a question that sub-agents work on, and the words in which they are asked."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deerflow.models.offline.conversation import Conversation, OfflineCall
from deerflow.models.offline.findings import CitedSentence, Research, Source, from_text
from deerflow.models.offline.phrases import phrases
from deerflow.models.offline.question import Question
from deerflow.models.offline.words import Language, language_of

MAX_TASKS = 12
"""More files than this share sub-agents."""
SUBAGENT_TYPE = "general-purpose"
_TOPIC_LETTERS = 32
"""How much of its question stands in a task's title."""

_ENGLISH = """You look at one part of the material for a larger question; others look at the rest.

Question: {question}
Aspects: {aspects}
Files:
{files}

Use grep to find where the files speak of it, then read_file, page by page where a file is long. For \
each aspect write a heading (### Aspect) and below it the few most relevant sentences as a list, exactly \
as they stand in the file, each followed by its index in the form [citation:NAME:LINE](PATH#LLINE). Say \
so where nothing is found, and name any file that could not be read and why. Do not write files; your \
answer is the result."""

_CHINESE = """你负责一个较大问题的一部分材料，其余部分由别人负责。

问题：{question}
方面：{aspects}
文件：
{files}

先用 grep 找到文件中相关的位置，再用 read_file 阅读，长文件要分页读。每个方面写一个标题（### 方面），\
在下面用列表逐字引用最相关的几句原文，每句后面用 [citation:文件名:行号](路径#L行号) 的形式标明出处。\
没有找到就直接说明；无法读取的文件请写明文件和原因。不要写文件，你的回答就是结果。"""

_QUESTION = re.compile(r"^(?:Question|问题)[:：]\s*(.+)$", re.M)
_ASPECTS = re.compile(r"^(?:Aspects|方面)[:：]\s*(.+)$", re.M)
_FILES = re.compile(r"^(?:Files|文件)[:：]\s*\n((?:- /.+(?:\n|$))+)", re.M)


@dataclass(frozen=True, slots=True)
class TaskPart:
    """The share of one sub-agent."""

    question: str
    aspects: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def language(self) -> Language:
        return language_of(self.question)

    @property
    def prompt(self) -> str:
        """The words in which the sub-agent is asked; `parse_part` reads them back."""
        template = _CHINESE if self.language == "zh" else _ENGLISH
        files = "\n".join(f"- {path}" for path in self.files)
        return template.format(question=self.question, aspects="; ".join(self.aspects), files=files)

    @property
    def title(self) -> str:
        """A few words for people who watch; whole ones."""
        name = self.files[0].rsplit("/", 1)[-1]
        if len(self.files) > 1:
            return (
                f"读 {len(self.files)} 个文件" if self.language == "zh" else f"Read {len(self.files)} files"
            )
        if len(self.aspects) == 1:
            topic = _start_of(self.aspects[0])
            return f"{name}：{topic}" if self.language == "zh" else f"{name}: {topic}"
        return f"读 {name}" if self.language == "zh" else f"Look through {name}"


def _start_of(text: str) -> str:
    if len(text) <= _TOPIC_LETTERS:
        return text
    start = text[:_TOPIC_LETTERS]
    return f"{start.rpartition(' ')[0] or start}…"  # Chinese has no spaces to cut at


def parse_part(prompt: str) -> TaskPart | None:
    """Return the share that a prompt describes, or None when it is no such prompt."""
    question, aspects, files = _QUESTION.search(prompt), _ASPECTS.search(prompt), _FILES.search(prompt)
    if not (question and aspects and files):
        return None
    labels = tuple(label.strip() for label in aspects[1].split(";") if label.strip())
    return TaskPart(
        question[1].strip(), labels, tuple(line[2:].strip() for line in files[1].strip().split("\n"))
    )


def split(question: Question, files: Sequence[str]) -> list[TaskPart]:
    """Return the parts of the work: aspect by aspect for one file, else file by file or group by group."""
    text = question.text[:2000]
    if len(files) == 1 and len(question.aspects) > 1:
        return [TaskPart(text, (aspect,), tuple(files)) for aspect in question.aspects]
    size = -(-len(files) // MAX_TASKS)
    return [TaskPart(text, question.plan, tuple(files[at : at + size])) for at in range(0, len(files), size)]


def next_tasks(parts: Sequence[TaskPart], conversation: Conversation) -> list[OfflineCall]:
    """Return the next batch of `task` calls: as many unfinished parts as may run at once."""
    done = {step.argument("prompt") for step in conversation.steps("task")}
    waiting = [part for part in parts if part.prompt not in done]
    return [
        OfflineCall(
            "task", {"description": part.title, "prompt": part.prompt, "subagent_type": SUBAGENT_TYPE}
        )
        for part in waiting[: conversation.limit]
    ]


def gathered(parts: Sequence[TaskPart], conversation: Conversation) -> Research:
    """Return what all sub-agents brought together."""
    findings: list[CitedSentence] = []
    sources: dict[str, Source] = {}
    for part, brought in _answers(parts, conversation):
        findings += [found for found in brought.findings if found.path in part.files]
        for source in brought.sources:
            known = sources.get(source.path)
            if known is None or known.state == "failed":
                sources[source.path] = source
        for found in findings:
            sources.setdefault(found.path, Source(found.path, "full"))
    return Research(tuple(findings), tuple(sources.values()))


def failed_parts(parts: Sequence[TaskPart], conversation: Conversation) -> dict[TaskPart, str]:
    """Return the parts whose sub-agent returned nothing, each with what it said instead."""
    said = {step.argument("prompt"): step.result for step in conversation.steps("task")}
    return {
        part: " ".join(said.get(part.prompt, "").split())[:300] or phrases(part.language).no_answer
        for part, brought in _answers(parts, conversation)
        if not (brought.findings or brought.sources)
    }


def _answers(parts: Sequence[TaskPart], conversation: Conversation) -> Iterator[tuple[TaskPart, Research]]:
    said = {step.argument("prompt"): step.result for step in conversation.steps("task")}
    for part in parts:
        yield part, from_text(said.get(part.prompt, ""))
