"""`edit_files`: several exact changes in one or more files, all of them or none.

Models count lines badly and write context well. So a hunk's line numbers are only a hint: its lines must
match the file exactly, at the line it names or at exactly one other. Texts are parsed and changed in a
thread: they may be long and would block the event loop.
"""

import asyncio
import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from deerflow.errors import SandboxError
from deerflow.sandbox import Sandbox
from deerflow.sandbox.process import to_the_end
from deerflow.tools.define import Described, PlainText, Runtime, VirtualPath, refuse, tool_of
from deerflow.tools.text import MAX_EDITED_BYTES, decoded, replace_text

EDIT_FILES = "edit_files"
MAX_EDITS = 200
MAX_CHARS = 400_000
WORKSPACE = "/mnt/user-data/workspace"
NOTHING = "/dev/null"
MAX_HUNKS = 500
MAX_FILES = 50
MAX_LINES = 200_000
MAX_SHOWN_MATCHES = 10
_HEADER = re.compile(r"@@ -(\d{1,9})(?:,\d{1,9})? \+\d{1,9}(?:,\d{1,9})? @@")
_NO_NEWLINE = "\\"
_OPENED = {"-": {"old"}, "+": {"new"}, " ": {"old", "new"}}
_IGNORED_PREFIXES = ("diff ", "index ", "new file mode", "old mode", "new mode", "similarity ")


@dataclass(slots=True)
class Hunk:
    """A sequence of lines and its replacement."""

    number: int
    header: str
    start: int
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    open_ends: set[str] = field(default_factory=set)
    """Those of `old` and `new` whose last line has no newline."""

    @property
    def content(self) -> str:
        """The content of a new file."""
        return "\n".join(self.new) + ("" if "new" in self.open_ends else "\n")


@dataclass(slots=True)
class FilePatch:
    """The hunks of one file."""

    path: str
    is_new: bool
    hunks: list[Hunk] = field(default_factory=list)


def parse_patch(text: str) -> list[FilePatch]:
    """Return the files of a unified diff with their hunks."""
    files: list[FilePatch] = []
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    position = 0
    while position < len(lines):
        line = lines[position]
        if line.startswith("--- ") and position + 1 < len(lines) and lines[position + 1].startswith("+++ "):
            files.append(_file(line, lines[position + 1]))
            if len(files) > MAX_FILES:
                raise refuse(f"The patch has more than {MAX_FILES} files; send it in parts.")
            position += 2
        elif line.startswith("@@"):
            position = _read_hunk(files, lines, position)
        elif not line.strip() or line.startswith(_IGNORED_PREFIXES):
            position += 1
        else:
            raise refuse(f"Line {position + 1} of the patch is no part of a unified diff: {line[:120]!r}.")
    _check(files)
    return files


def apply_patch(text: str, patch: FilePatch) -> str:
    """Return `text` with all hunks applied; a hunk that does not match raises an error that names it."""
    ending = "\r\n" if "\r\n" in text else "\n"
    count = text.count(ending) + 1
    if count > MAX_LINES:
        raise refuse(
            f"{patch.path} has {count} lines; a patch can change files of up to {MAX_LINES}. "
            "Give edits instead, or use bash."
        )
    lines = text.split(ending)
    search = _LineSearch(lines, patch)
    kept: list[str] = []
    end = 0
    for hunk in patch.hunks:
        start = search.start_of(hunk, end)
        kept += lines[end:start]
        kept += hunk.new
        end = start + len(hunk.old)
        if not hunk.old and "new" in hunk.open_ends and lines[end:] == [""]:
            end += 1  # drop the empty string after the last newline: the new lines end without one
    return ending.join(kept + lines[end:])


class _LineSearch:
    """Finds hunks in linear time: maps each distinct line to one character and uses `str.find`."""

    def __init__(self, lines: list[str], patch: FilePatch) -> None:
        self._lines = lines
        self._path = patch.path
        self._codes: dict[str, str] = {}
        self._text = self._encoded(lines)

    def start_of(self, hunk: Hunk, end: int) -> int:
        """Return where a hunk applies: at the line it names, else at the only other match.

        Args:
            end: The line after the previous hunk.
        """
        wanted = hunk.start - 1
        if not hunk.old:
            return max(end, min(hunk.start, len(self._lines)))
        old = self._encoded(hunk.old)
        if wanted >= end and self._text.startswith(old, wanted):
            return wanted
        found = self._all(old, end)
        if len(found) == 1:
            return found[0]
        where = f"Hunk {hunk.number} ({hunk.header}) of {self._path}"
        if found:
            numbers = ", ".join(str(at + 1) for at in found)
            raise refuse(
                f"{where} fits at several lines ({numbers}). Nothing was changed. Add lines around it."
            )
        raise refuse(f"{where} does not fit. Nothing was changed. {self._difference(hunk, old, wanted)}")

    def _encoded(self, lines: list[str]) -> str:
        codes = self._codes
        return "".join(codes.setdefault(line, chr(len(codes))) for line in lines)

    def _all(self, old: str, start: int) -> list[int]:
        """Return the first positions of these lines, at most `MAX_SHOWN_MATCHES`."""
        found: list[int] = []
        while len(found) < MAX_SHOWN_MATCHES and (at := self._text.find(old, start)) >= 0:
            found.append(at)
            start = at + 1
        return found

    def _difference(self, hunk: Hunk, old: str, wanted: int) -> str:
        """Describe the first mismatched line, at the position where most leading lines of the hunk match."""
        matched, too_many = 0, len(old)
        while too_many - matched > 1:  # binary search: if a prefix matches, so does every shorter one
            middle = (matched + too_many) // 2
            matched, too_many = (middle, too_many) if old[:middle] in self._text else (matched, middle)
        here = (self._text.find(old[:matched]) if matched else max(wanted, 0)) + matched
        has = repr(self._lines[here][:120]) if here < len(self._lines) else "nothing: the file ends"
        return (
            f"It wants {hunk.old[matched][:120]!r} at line {here + 1}, where the file has {has}. "
            "Read the file and write the hunk anew."
        )


def absolute(path: str) -> str:
    """Return a patch's path as an absolute path; a relative one is below the workspace."""
    return normal_path(path if path.startswith("/") else f"{WORKSPACE}/{path}")


def normal_path(path: str) -> str:
    """Return a path without empty and dotted parts, as the file system resolves it."""
    return re.sub("^/+", "/", posixpath.normpath(path))


def _file(old: str, new: str) -> FilePatch:
    before, after = _named(old), _named(new)
    if after == NOTHING:
        raise refuse(f"The patch would delete {before}. Delete files with bash, and send the rest again.")
    source, target = _plain(before, "a/"), _plain(after, "b/")
    if before != NOTHING and source != target:
        raise refuse(f"The patch would rename {source} to {target}. Rename files with bash (mv) first.")
    return FilePatch(target, is_new=before == NOTHING)


def _named(line: str) -> str:
    """Return the name in a `---` or `+++` line, without the timestamp that diff adds after a tab."""
    return line[4:].split("\t", 1)[0].strip()


def _plain(name: str, prefix: str) -> str:
    if name.startswith(prefix):
        name = name.removeprefix(prefix)
        return absolute(f"/{name}" if name.startswith("mnt/") else name)
    return absolute(name)


def patch_paths(text: str) -> list[str]:
    """Return the unnormalised paths in a patch's headers, even if the patch is otherwise invalid."""
    lines = text.split("\n")
    named = [line for line in lines if line.startswith(("--- ", "+++ "))]
    return [name for line in named if (name := _written(_named(line))) != NOTHING]


def _written(name: str) -> str:
    for prefix in ("a/", "b/"):
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            return f"/{name}" if name.startswith("mnt/") else f"{WORKSPACE}/{name}"
    return name if name.startswith("/") else f"{WORKSPACE}/{name}"


def _read_hunk(files: Sequence[FilePatch], lines: list[str], position: int) -> int:
    if not files:
        raise refuse("The patch starts with a hunk; put '--- path' and '+++ path' in front of it.")
    hunks = files[-1].hunks
    header = _HEADER.match(lines[position])
    if header is None:
        raise refuse(f"'{lines[position][:80]}' is no hunk header; write it like @@ -12,3 +12,4 @@.")
    hunk = Hunk(len(hunks) + 1, header.group(), int(header.group(1)))
    hunks.append(hunk)
    position += 1
    first = position
    while position < len(lines) and not _ends(lines, position):
        _take(hunk, lines[position], lines[position - 1])
        position += 1
    while position > first and not lines[position - 1]:  # an empty line between two files is not context
        position -= 1
        hunk.old.pop()
        hunk.new.pop()
    _close(hunk)
    return position


def _ends(lines: list[str], position: int) -> bool:
    line = lines[position]
    following = lines[position + 1] if position + 1 < len(lines) else ""
    is_next_file = line.startswith("--- ") and following.startswith("+++ ")
    return is_next_file or line.startswith(("@@", "diff --git "))


def _take(hunk: Hunk, line: str, before: str) -> None:
    sign, rest = line[:1], line[1:].removesuffix("\r")
    if sign == _NO_NEWLINE:
        hunk.open_ends |= _OPENED.get(before[:1], set())
        return
    if sign not in ("+", "-", " ", ""):
        raise refuse(
            f"Hunk {hunk.number} ({hunk.header}) has a line that starts with none of ' ', '+' and '-': "
            f"{line[:120]!r}."
        )
    if sign != "+":
        hunk.old.append(rest)
    if sign != "-":
        hunk.new.append(rest)


def _close(hunk: Hunk) -> None:
    """Represent a missing final newline like `split` does: a text with one has an empty last line."""
    if hunk.open_ends == {"old"}:
        hunk.new.append("")
    elif hunk.open_ends == {"new"} and hunk.old:
        hunk.old.append("")
    if hunk.old == hunk.new:
        raise refuse(f"Hunk {hunk.number} ({hunk.header}) changes nothing; leave it out.")


def _check(files: Sequence[FilePatch]) -> None:
    if not any(file.hunks for file in files):
        raise refuse("The patch has no hunks; write '--- path', '+++ path' and '@@ -1,2 +1,3 @@' with lines.")
    if sum(len(file.hunks) for file in files) > MAX_HUNKS:
        raise refuse(f"The patch has more than {MAX_HUNKS} hunks; send it in parts.")
    times = Counter(file.path for file in files)
    for file in files:
        if not file.hunks:
            raise refuse(
                f"{file.path} has no hunks in the patch. If its '---' and '+++' lines are contents, "
                "change those lines with str_replace."
            )
        if times[file.path] > 1:
            raise refuse(f"{file.path} stands in the patch twice; put all of its hunks under one header.")
        if file.is_new and (len(file.hunks) != 1 or file.hunks[0].old):
            raise refuse(f"{file.path} is new: it needs exactly one hunk, with '+' lines only.")


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
    return "\n".join(_summary(change) for change in changes)


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
            message = (
                f"Edit {number} of {len(edits)} ({edit.path}) does not fit. Nothing was changed. {error}"
            )
            raise refuse(message) from error
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


def _summary(change: Change) -> str:
    if change.before is None:
        return f"Wrote {change.path} ({len(change.after)} bytes)."
    return f"Changed {change.path} (now {len(change.after)} bytes)."
