"""`edit_files`: several exact changes in one or more files, all of them or none.

Texts are parsed and changed in a thread: they may be long and would block the event loop.
"""

import asyncio
import posixpath
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from deerflow.errors import SandboxError
from deerflow.sandbox import Sandbox
from deerflow.sandbox.process import to_the_end
from deerflow.tools.define import Described, PlainText, Runtime, VirtualPath, refuse, tool_of
from deerflow.tools.patch import MAX_FILES, FilePatch, apply_patch, parse_patch
from deerflow.tools.text import MAX_EDITED_BYTES, decoded, replace_text

EDIT_FILES = "edit_files"
MAX_EDITS = 200
MAX_CHARS = 400_000


class Edit(BaseModel):
    """One exact replacement."""

    path: Annotated[VirtualPath, AfterValidator(posixpath.normpath)] = Field(
        description="The file, as an absolute path."
    )
    old_str: PlainText = Field(description="The text to replace, exactly as it is in the file.")
    new_str: PlainText = Field(description="What to put there.")
    replace_all: bool = Field(False, description="Replace every occurrence instead of the only one.")


class EditFilesArguments(Described):
    """What `edit_files` takes."""

    edits: list[Edit] = Field([], max_length=MAX_EDITS, description="Replacements, made in this order.")
    patch: PlainText = Field(
        "", max_length=MAX_CHARS, description="Instead of edits: a unified diff, with absolute paths."
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> "EditFilesArguments":
        if bool(self.edits) == bool(self.patch.strip()):
            raise ValueError("give either edits or patch, and one of them")
        return self


@dataclass(frozen=True, slots=True)
class Change:
    """A file's content before and after; None before means that the file is new."""

    path: str
    before: bytes | None
    after: bytes


@tool_of(EDIT_FILES, EditFilesArguments)
async def edit_files_tool(*, description: str, edits: list[Edit], patch: str, runtime: Runtime) -> str:
    """Change several places in one or more files at once: all of the changes are made, or none.

    Give `edits`, each an exact text and what replaces it, or `patch`, a unified diff with some lines of
    context around each change. Use it instead of many str_replace calls. Read the files first.
    """
    sandbox = runtime.context.sandbox
    patches = await asyncio.to_thread(parse_patch, patch) if not edits else []
    paths = sorted({edit.path for edit in edits} | {each.path for each in patches})
    if len(paths) > MAX_FILES:
        raise refuse(f"{len(paths)} files at once are too many; at most {MAX_FILES}. Change them in parts.")
    async with AsyncExitStack() as held:
        for path in paths:  # sorted: every call takes the locks in the same order, so none deadlocks
            await held.enter_async_context(sandbox.editing(path))
        changes = await (_edited(sandbox, edits) if edits else _patched(sandbox, patches))
        await to_the_end(_write_all(sandbox, changes))  # a cancellation must not leave half of the changes
    return "\n".join(_told(change) for change in changes)


def edited_paths(arguments: Mapping[str, Any]) -> list[str]:
    """Return the files that a call would change, for checks before it runs."""
    try:
        wanted = EditFilesArguments.model_validate(arguments)
        files = parse_patch(wanted.patch) if not wanted.edits else []
    except (ValidationError, SandboxError):  # the tool itself reports the error
        return []
    return list(dict.fromkeys([*(edit.path for edit in wanted.edits), *(file.path for file in files)]))


async def _edited(sandbox: Sandbox, edits: Sequence[Edit]) -> list[Change]:
    before: dict[str, bytes] = {}
    texts: dict[str, str] = {}
    for number, edit in enumerate(edits, start=1):
        if edit.path not in texts:
            before[edit.path], texts[edit.path] = await _text(sandbox, edit.path)
        try:
            changed = await asyncio.to_thread(
                replace_text, texts[edit.path], edit.old_str, edit.new_str, replace_all=edit.replace_all
            )
        except SandboxError as error:
            told = f"Edit {number} of {len(edits)} ({edit.path}) does not fit. Nothing was changed. {error}"
            raise refuse(told) from error
        texts[edit.path] = changed.text
    return [Change(path, before[path], text.encode()) for path, text in texts.items()]


async def _patched(sandbox: Sandbox, patches: Sequence[FilePatch]) -> list[Change]:
    changes = []
    for patch in patches:
        if patch.is_new:
            if await _is_there(sandbox, patch.path):
                raise refuse(f"{patch.path} is there already, but the patch takes it for new.")
            changes.append(Change(patch.path, None, patch.hunks[0].content.encode()))
        else:
            before, text = await _text(sandbox, patch.path)
            after = await asyncio.to_thread(apply_patch, text, patch)
            changes.append(Change(patch.path, before, after.encode()))
    # Changes that can be rolled back are written first; new files last, when nothing else can fail.
    return sorted(changes, key=lambda change: change.before is None)


async def _write_all(sandbox: Sandbox, changes: Sequence[Change]) -> None:
    done: list[Change] = []
    for change in changes:
        try:
            if change.before is None:
                await sandbox.write_file(change.path, change.after.decode())
            else:
                await sandbox.update_file(change.path, change.after)
        except SandboxError as error:
            left = [made.path for made in done if made.before is None]
            for made in done:
                if made.before is not None:
                    await sandbox.update_file(made.path, made.before)
            note = f" These new files were written before: {', '.join(left)}." if left else ""
            raise refuse(
                f"{change.path} could not be written, so nothing was changed: {error}{note}"
            ) from error
        done.append(change)


async def _text(sandbox: Sandbox, path: str) -> tuple[bytes, str]:
    content = await sandbox.download_file(path, max_bytes=MAX_EDITED_BYTES)
    return content, decoded(content, path)


async def _is_there(sandbox: Sandbox, path: str) -> bool:
    return await sandbox.file_version(path) is not None


def _told(change: Change) -> str:
    if change.before is None:
        return f"Wrote {change.path} ({len(change.after)} bytes)."
    return f"Changed {change.path} (now {len(change.after)} bytes)."
