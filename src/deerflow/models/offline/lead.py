"""The lead: finds the files, has them read, writes the report, presents it and answers.

Each call looks at what this turn has done so far and returns the one next step.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from deerflow.models.offline.conversation import Conversation, OfflineCall, Reply, Step, label
from deerflow.models.offline.file_selection import (
    MAX_FILES,
    OUTPUTS,
    UPLOADS,
    WORKSPACE,
    FileRequest,
    FileSelection,
    find,
    is_small_talk,
    requested_files,
)
from deerflow.models.offline.findings import Research, to_text
from deerflow.models.offline.phrases import Phrases, counted_files, phrases
from deerflow.models.offline.question import Question, understand
from deerflow.models.offline.reading import next_reads
from deerflow.models.offline.report import Notes, slug, summary_of, title, unread_lines, write_report
from deerflow.models.offline.research import grep_words, research
from deerflow.models.offline.tasks import failed_parts, gathered, next_tasks, parse_part, split
from deerflow.models.offline.words import Language, language_of

MAX_WRITES = 2
"""Tries to write the report before it goes into the answer instead."""

_CITATION = re.compile(r"\[citation:")


def decide(conversation: Conversation) -> Reply:
    """Return the next step of a lead or a sub-agent, whichever the tools and the prompt show."""
    part = None if "task" in conversation.tools else parse_part(conversation.current.question)
    if part is None:
        return lead_reply(conversation)
    words = grep_words(part.aspects, part.question)
    calls = next_reads(part.files, words, conversation, part.language)
    if calls:
        return Reply(calls=tuple(calls))
    if not conversation.tools & {"read_file", "grep"}:
        return Reply(phrases(part.language).cannot_read)
    found = research(part.files, part.aspects, part.question, conversation, part.language)
    return Reply(to_text(found, aspects=part.aspects, language=part.language))


def lead_reply(conversation: Conversation) -> Reply:
    """Return the lead's next step in the current turn."""
    question = understand(conversation.current.question)
    if not conversation.current.question or (is_small_talk(question.text) and conversation.current.uploads):
        question = understand(label(_thread_language(conversation), "Summarise these files", "总结这些文件"))
    request = requested_files(conversation)
    say = phrases(question.language)
    if request.is_empty or not conversation.tools:
        return Reply(_introduction(conversation, say))
    written = [step for step in conversation.steps("write_file") if step.argument("path").startswith(OUTPUTS)]
    if any(not step.failed for step in written):
        return _present(question, next(step for step in written if not step.failed), conversation)
    found = find(request, conversation, question.language)
    if found.calls:
        return _planned(found.calls, question, conversation, active=0)
    if not found.files:
        return Reply(f"{_none_found(request, found, say)}\n\n{_introduction(conversation, say)}")
    return _work(question, found, written, conversation)


def _introduction(conversation: Conversation, say: Phrases) -> str:
    """Return who answers here and how to connect a model; a key that is set already is not asked for."""
    unusable = [
        say.unusable_key.format(variable=variable, provider=provider, command=command)
        for variable, provider, command in conversation.unusable_keys
    ]
    return say.introduction + (say.joint.join(unusable) or say.connect)


@dataclass(frozen=True, slots=True)
class _Progress:
    """How far the research is: calls to make, or what it brought."""

    calls: tuple[OfflineCall, ...] = ()
    brought: Research = Research()
    notes: tuple[str, ...] = ()


def _work(question: Question, found: FileSelection, written: list[Step], conversation: Conversation) -> Reply:
    say = phrases(question.language)
    if not conversation.tools & {"task", "read_file", "grep"}:
        return Reply(say.cannot_read)
    delegates = "task" in conversation.tools
    progress = (_delegated if delegates else _own)(question, found.files, conversation)
    if progress.calls:
        return _planned(progress.calls, question, conversation, active=1)
    brought, notes = progress.brought, Notes((*progress.notes, *_notes(found, say)))
    if all(source.state in ("failed", "empty") for source in brought.sources):
        return Reply(_nothing_readable(brought, notes, say))
    if not brought.findings:
        return Reply(_nothing_found(question, brought, notes))
    report = write_report(question, brought, notes)
    if "write_file" in conversation.tools and len(written) < MAX_WRITES:
        why = label(question.language, "Write the report", "写报告")
        path = _free_path(question, conversation)
        call = OfflineCall(
            "write_file", {"description": why, "path": path, "content": report, "append": False}
        )
        return _planned((call,), question, conversation, active=2)
    if written:
        return Reply(f"{say.write_failed.format(reason=written[-1].result.strip()[:300])}\n\n{report}")
    return Reply(report)


def _own(question: Question, files: Sequence[str], conversation: Conversation) -> _Progress:
    """Search and read without help."""
    words = grep_words(question.plan, question.text)
    calls = next_reads(files, words, conversation, question.language)
    if calls:
        return _Progress(tuple(calls))
    brought = research(files, question.plan, question.text, conversation, question.language)
    return _Progress(brought=brought)


def _delegated(question: Question, files: Sequence[str], conversation: Conversation) -> _Progress:
    """Have sub-agents search and read; the lead closes the gap where one of them failed."""
    parts = split(question, files)
    calls = next_tasks(parts, conversation)
    if calls:
        return _Progress(tuple(calls))
    brought, failed = gathered(parts, conversation), failed_parts(parts, conversation)
    if not failed:
        return _Progress(brought=brought)
    say = phrases(question.language)
    notes = tuple(say.failed_task.format(task=part.title, reason=reason) for part, reason in failed.items())
    left = tuple(dict.fromkeys(path for part in failed for path in part.files))
    own = _own(question, left, conversation)
    sources = {source.path: source for source in (*own.brought.sources, *brought.sources)}
    findings = tuple(dict.fromkeys((*brought.findings, *own.brought.findings)))
    return _Progress(own.calls, Research(findings, tuple(sources.values())), notes)


def _present(question: Question, step: Step, conversation: Conversation) -> Reply:
    """Show the written report, then answer from it: it holds all that the answer needs."""
    path, report = step.argument("path"), step.argument("content")
    if "present_files" in conversation.tools and not conversation.steps("present_files"):
        call = OfflineCall("present_files", {"filepaths": [path]})
        return _planned((call,), question, conversation, active=3)
    say = phrases(question.language)
    files = counted_files(report[report.rfind("\n## ") :].count("\n- `"), question.language)
    claims = summary_of(report)
    index = say.report_at.format(count=len(_CITATION.findall(report)), path=path)
    opening = say.answer.format(files=files)
    unread = report.partition(f"\n## {say.unread}\n\n")[2].partition("\n\n## ")[0]
    parts = [opening, "\n".join(claims), f"{say.unread}:\n{unread}" if unread else "", index, say.footer]
    return Reply("\n\n".join(part for part in parts if part))


def _planned(
    calls: tuple[OfflineCall, ...], question: Question, conversation: Conversation, *, active: int
) -> Reply:
    """Add the state of the plan to the calls, where the run keeps one and it has changed."""
    if "write_todos" not in conversation.tools:
        return Reply(calls=calls)
    say = phrases(question.language)
    steps = (say.todo_find, say.todo_research, say.todo_report)
    states = [
        "completed" if at < active else "in_progress" if at == active else "pending"
        for at in range(len(steps))
    ]
    todos = [{"content": text, "status": state} for text, state in zip(steps, states, strict=True)]
    last = conversation.steps("write_todos")
    if last and last[-1].args.get("todos") == todos:
        return Reply(calls=calls)
    return Reply(calls=(OfflineCall("write_todos", {"todos": todos}), *calls))


def _free_path(question: Question, conversation: Conversation) -> str:
    """Return a path that this thread has not written to yet: an earlier report stays."""
    taken = {
        step.argument("path")
        for turn in conversation.turns
        for step in turn.steps
        if step.name == "write_file"
    }
    name = slug(question.text)
    path, number = f"{OUTPUTS}/{name}.md", 2
    while path in taken:
        path, number = f"{OUTPUTS}/{name}-{number}.md", number + 1
    return path


def _notes(found: FileSelection, say: Phrases) -> tuple[str, ...]:
    notes = [f"`{name}`: {say.missing}" for name in found.missing]
    if found.no_text:
        names = ", ".join(path.rsplit("/", 1)[-1] for path in found.no_text[:10])
        more = " …" if len(found.no_text) > 10 else ""
        notes.append(say.not_text.format(count=len(found.no_text), names=names + more))
    if found.left_out:
        notes.append(say.narrowed.format(count=found.left_out, limit=MAX_FILES))
    return tuple(notes)


def _none_found(request: FileRequest, found: FileSelection, say: Phrases) -> str:
    locations = ", ".join((*request.folders, *request.names)) or f"{UPLOADS}, {WORKSPACE}"
    return " ".join(
        [say.no_files.format(locations=locations), *_notes(FileSelection(no_text=found.no_text), say)]
    )


def _nothing_found(question: Question, brought: Research, notes: Notes) -> str:
    say = phrases(question.language)
    count = sum(source.state in ("full", "part") for source in brought.sources)
    files = counted_files(count, question.language)
    told = say.answer_empty.format(files=files, what=title(question.text).rstrip(" .?!。？！"))
    unread = unread_lines(question, brought, notes)
    return "\n\n".join(
        part for part in (told, f"{say.unread}:\n{unread}" if unread else "", say.footer) if part
    )


def _nothing_readable(brought: Research, notes: Notes, say: Phrases) -> str:
    lines = [f"- {source.path}: {source.detail or say.empty}" for source in brought.sources]
    return "\n".join([say.nothing_readable, "", *lines, *(f"- {note}" for note in notes.lines)])


def _thread_language(conversation: Conversation) -> Language:
    return language_of(" ".join(turn.question for turn in conversation.turns))
