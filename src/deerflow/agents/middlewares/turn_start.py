"""Prepares a turn: records uploads, date and memories, and sets a new thread's title.

This is the only hook of the chain that is a graph node, and so the only one that costs a checkpoint: it
writes the state updates of several features at once. The title is cut from the question here, before the
first token, so that a run that is stopped early has one too.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from langchain_core.messages import AnyMessage, HumanMessage, RemoveMessage
from langgraph.runtime import Runtime
from typing_extensions import override

from deerflow.agents.messages import outdated_failures
from deerflow.agents.middlewares.base import AgentKind, ChainMiddleware
from deerflow.agents.middlewares.memory import AgentMemory
from deerflow.agents.middlewares.reminder import Clock, local_time, new_note
from deerflow.agents.middlewares.title import title_from_question
from deerflow.agents.state import ThreadData, ThreadState, UploadedFile
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.config import Settings, TitleSettings
from deerflow.context import RunContext
from deerflow.domain import ThreadFolders, companion_of

USER_DATA = "/mnt/user-data"
UPLOADS = f"{USER_DATA}/uploads"
THREAD_DATA = ThreadData(
    workspace_path=f"{USER_DATA}/workspace", uploads_path=UPLOADS, outputs_path=f"{USER_DATA}/outputs"
)
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class TurnStartMiddleware(ChainMiddleware):
    """Writes the state with which a turn starts."""

    applies_to = AgentKind.LEAD

    def __init__(
        self, *, title: TitleSettings, memory: AgentMemory | None = None, clock: Clock = local_time
    ) -> None:
        super().__init__()
        self._title = title
        self._memory = memory
        self._clock = clock

    @classmethod
    def from_settings(cls, settings: Settings, memory: AgentMemory | None) -> Self:
        return cls(title=settings.title, memory=memory)

    @override
    async def abefore_agent(self, state: ThreadState, runtime: Runtime[RunContext]) -> dict[str, Any] | None:
        context = runtime.context
        sizes = upload_sizes(context.folders)
        update: dict[str, Any] = {}
        if state.get("thread_data") != THREAD_DATA:
            update["thread_data"] = THREAD_DATA
        if state.get("sandbox") is None:
            update["sandbox"] = {"sandbox_id": context.thread_id}
        question = last_question(state["messages"])
        if question is not None and (new := new_uploads(question, sizes, state.get("uploaded_files") or ())):
            update["uploaded_files"] = new
        if outdated := outdated_failures(state["messages"]):
            update["messages"] = [RemoveMessage(id=message_id) for message_id in outdated]
        known = state.get("reminders") or {}
        notes = new_note(question, known, self._clock().date())
        if self._memory is not None:
            notes = await self._memory.add_notes(notes, known, context, state["messages"])
        if notes:
            update["reminders"] = notes
        if not state.get("title") and self._title.enabled:
            title = title_from_question(state["messages"], self._title)
            if title:
                update["title"] = title
        return update or None


def last_question(messages: Sequence[AnyMessage]) -> HumanMessage | None:
    """Return the message that this turn answers."""
    return next((message for message in reversed(messages) if isinstance(message, HumanMessage)), None)


def new_uploads(
    question: HumanMessage, sizes: Mapping[str, int], known: Iterable[UploadedFile]
) -> list[UploadedFile]:
    """Return the uploads of `question`: files it names, and files that no earlier message mentioned."""
    mentioned: set[str] = set()
    for file in known:
        if file["message_id"] != question.id:
            mentioned |= {file["path"], file.get("markdown_path", "")}
    named = _named_files(question)
    companions = {name: companion for name in sizes if (companion := companion_of(name)) in sizes}
    return [
        _upload(name, size, companions.get(name), question)
        for name, size in sorted(sizes.items())
        if name not in companions.values()
        and (
            name in named
            or not {f"{UPLOADS}/{each}" for each in (name, companions.get(name)) if each} <= mentioned
        )
    ]


def _upload(name: str, size: int, companion: str | None, question: HumanMessage) -> UploadedFile:
    file = UploadedFile(filename=name, path=f"{UPLOADS}/{name}", size=size, message_id=question.id or "")
    if companion is not None:
        file["markdown_path"] = f"{UPLOADS}/{companion}"
    return file


def _named_files(question: HumanMessage) -> set[str]:
    """Return the file names in the message's `files`; malformed entries are ignored."""
    files = question.additional_kwargs.get("files")
    entries = files if isinstance(files, list) else []
    names = (entry.get("filename") for entry in entries if isinstance(entry, dict))
    return {name for name in names if isinstance(name, str)}


def upload_sizes(folders: ThreadFolders) -> dict[str, int]:
    """Return the sizes of a thread's uploads by name.

    A few system calls on the loop's thread: faster than a switch to another one.
    """
    sizes: dict[str, int] = {}
    try:
        paths = list(folders.uploads.iterdir())
    except FileNotFoundError:  # created with the first upload or the first use of the sandbox
        return sizes
    for path in paths:
        with suppress(FileNotFoundError):  # deleted concurrently
            if _is_upload(path):
                sizes[path.name] = path.stat().st_size
    return sizes


def _is_upload(path: Path) -> bool:
    """Return whether to list the file: not hidden, no symlink, no control characters in its name."""
    return (
        not path.name.startswith(".")
        and UNPRINTABLE.search(path.name) is None
        and not path.is_symlink()
        and path.is_file()
    )


class FailureNoteMiddleware(ChainMiddleware):
    """Removes the failure notes of earlier attempts at the last question, together with the new answer."""

    applies_to = AgentKind.LEAD

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        response = await handler(request)
        outdated = outdated_failures(request.state["messages"])
        if not outdated:
            return response
        # In the same list as the response: two writes to one channel would reach clients as two updates.
        gone = [RemoveMessage(id=message_id) for message_id in outdated]
        return replace(response, result=[*gone, *response.result])
