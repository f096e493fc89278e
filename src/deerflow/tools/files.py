"""`ls`, `glob`, `grep`, `read_file`, `write_file`, `str_replace`: tools for the thread's files."""

import asyncio
import logging
import os
from typing import Annotated, Any

from langchain_core.tools import BaseTool
from pydantic import AfterValidator, BaseModel, Field, create_model

from deerflow.tools.define import Described, PlainText, Runtime, VirtualPath, refuse, tool_of
from deerflow.tools.text import MAX_EDITED_BYTES, SHOWN_LINE_CHARS, decoded, page, replace_text

logger = logging.getLogger(__name__)

MAX_GLOB_RESULTS = 1000
MAX_GREP_RESULTS = 500
WRITE_LIMIT_VARIABLE = "DEERFLOW_WRITE_FILE_MAX_BYTES"
DEFAULT_WRITE_LIMIT = 80 * 1024


class LsArguments(Described):
    """What `ls` takes."""

    path: VirtualPath = Field(description="The folder, as an absolute path.")


class GlobArguments(Described):
    """What `glob` takes."""

    pattern: PlainText = Field(min_length=1, description="A pattern such as **/*.py, relative to the path.")
    path: VirtualPath = Field(description="The folder to search, as an absolute path.")
    include_dirs: bool = Field(False, description="Find folders too.")
    max_results: int = Field(200, description=f"How many paths to return, at most {MAX_GLOB_RESULTS}.")


class GrepArguments(Described):
    """What `grep` takes."""

    pattern: PlainText = Field(min_length=1, description="A regular expression, or text when literal is set.")
    path: VirtualPath = Field(description="The file or folder to search, as an absolute path.")
    glob: PlainText | None = Field(None, description="Search only files like this, such as **/*.py.")
    literal: bool = Field(False, description="Take the pattern as plain text.")
    case_sensitive: bool = Field(False, description="Tell upper from lower case.")
    max_results: int = Field(100, description=f"How many lines to return, at most {MAX_GREP_RESULTS}.")


class ReadFileArguments(Described):
    """What `read_file` takes."""

    path: VirtualPath = Field(description="The file, as an absolute path.")
    start_line: int | None = Field(None, description="The first line to read, counted from 1.")
    end_line: int | None = Field(None, description="The last line to read.")


class WriteFileArguments(Described):
    """What `write_file` takes."""

    path: VirtualPath = Field(description="The file, as an absolute path; folders are made as needed.")
    content: PlainText = Field(description="The text to write.")
    append: bool = Field(False, description="Add to the end of the file instead of replacing it.")


class StrReplaceArguments(Described):
    """What `str_replace` takes."""

    path: VirtualPath = Field(description="The file, as an absolute path.")
    old_str: PlainText = Field(description="The text to replace, exactly as it is in the file.")
    new_str: PlainText = Field(description="What to put there.")
    replace_all: bool = Field(False, description="Replace every occurrence instead of the only one.")


@tool_of("ls", LsArguments, is_safe_to_repeat=True)
async def ls_tool(*, description: str, path: str, runtime: Runtime) -> str:
    """List a folder two levels deep; folders end with a slash."""
    entries = await runtime.context.sandbox.list_dir(path, max_depth=2)
    return _lines_within(entries, runtime.context.settings.sandbox.ls_output_max_chars) or "(empty)"


@tool_of("glob", GlobArguments, is_safe_to_repeat=True)
async def glob_tool(
    *, description: str, pattern: str, path: str, include_dirs: bool, max_results: int, runtime: Runtime
) -> str:
    """Find files by name below a folder, such as **/*.md."""
    limit = _within(max_results, MAX_GLOB_RESULTS)
    found, has_more = await runtime.context.sandbox.glob(
        path, pattern, include_dirs=include_dirs, max_results=limit
    )
    if not found:
        return f"No files match {pattern} below {path}."
    return "\n".join(found) + (f"\n[Only the first {len(found)} are shown.]" if has_more else "")


@tool_of("grep", GrepArguments, is_safe_to_repeat=True)
async def grep_tool(
    *,
    description: str,
    pattern: str,
    path: str,
    glob: str | None,
    literal: bool,
    case_sensitive: bool,
    max_results: int,
    runtime: Runtime,
) -> str:
    """Search text files for a pattern; each match is shown as path:line: text."""
    limit = _within(max_results, MAX_GREP_RESULTS)
    matches, has_more = await runtime.context.sandbox.grep(
        path, pattern, glob=glob, literal=literal, case_sensitive=case_sensitive, max_results=limit
    )
    if not matches:
        return f"No lines match below {path}."
    lines = [f"{match.path}:{match.line}: {_short(match.text)}" for match in matches]
    return "\n".join(lines) + (f"\n[Only the first {len(lines)} matches are shown.]" if has_more else "")


@tool_of("read_file", ReadFileArguments, is_safe_to_repeat=True)
async def read_file_tool(
    *, description: str, path: str, start_line: int | None, end_line: int | None, runtime: Runtime
) -> str:
    """Read a text file, whole or by lines. A long file is cut; the note at its end says how to read on."""
    text = await runtime.context.sandbox.read_file(path)
    limit = runtime.context.settings.sandbox.read_file_output_max_chars
    return await asyncio.to_thread(page, text, start=start_line, end=end_line, max_chars=limit)


@tool_of("write_file", WriteFileArguments)
async def write_file_tool(
    *, description: str, path: str, content: str, append: bool, runtime: Runtime
) -> str:
    """Write text to a file, replacing what is there, or append to it.

    Write long files in parts: the first part without append, the others with append. Use str_replace to
    change a part of a file.
    """
    size = len(content.encode())
    limit = _write_limit()
    if not append and 0 < limit < size:
        raise refuse(
            f"The content has {size} bytes; one call may write {limit}. Write the first part, then the "
            "others with append."
        )
    await runtime.context.sandbox.write_file(path, content, append=append)
    return f"{'Appended' if append else 'Wrote'} {size} bytes to {path}."


@tool_of("str_replace", StrReplaceArguments)
async def str_replace_tool(
    *, description: str, path: str, old_str: str, new_str: str, replace_all: bool, runtime: Runtime
) -> str:
    """Replace a piece of text in a file. It must occur exactly once, unless replace_all is set."""
    sandbox = runtime.context.sandbox
    async with sandbox.editing(path):
        text = decoded(await sandbox.download_file(path, max_bytes=MAX_EDITED_BYTES), path)
        changed = await asyncio.to_thread(replace_text, text, old_str, new_str, replace_all=replace_all)
        await sandbox.update_file(path, changed.text.encode())
    return f"Replaced {changed.count} occurrence{'s' if changed.count > 1 else ''} in {path}."


def with_max_results(tool: BaseTool, most: Any) -> BaseTool:
    """Return `glob` or `grep` with a different default and maximum of results; other tools unchanged."""
    schema = tool.args_schema
    if most is None or not isinstance(schema, type) or not issubclass(schema, GlobArguments | GrepArguments):
        return tool
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        logger.warning("tool %s: max_results must be a number above 0, not %.80r", tool.name, most)
        return tool
    bound = min(most, MAX_GLOB_RESULTS if issubclass(schema, GlobArguments) else MAX_GREP_RESULTS)
    max_results: Any = (
        Annotated[int, AfterValidator(lambda number: min(number, bound))],
        Field(bound, description=f"How many to return, at most {bound}."),
    )
    narrowed: type[BaseModel] = create_model(
        schema.__name__, __base__=schema, __doc__=schema.__doc__, max_results=max_results
    )
    return tool.model_copy(update={"args_schema": narrowed})


def _within(requested: int, most: int) -> int:
    return max(1, min(requested, most))


def _short(line: str) -> str:
    return line if len(line) <= SHOWN_LINE_CHARS else f"{line[:SHOWN_LINE_CHARS]}…"


def _lines_within(lines: list[str], limit: int) -> str:
    """Join as many lines as fit and add how many were omitted; 0 means no limit."""
    shown, size = 0, 0
    while shown < len(lines) and (limit <= 0 or size + len(lines[shown]) <= limit):
        size += len(lines[shown]) + 1
        shown += 1
    text = "\n".join(lines[:shown])
    left = len(lines) - shown
    return text if not left else f"{text}\n[{left} more entries; list a folder below this one.]"


def _write_limit() -> int:
    value = os.environ.get(WRITE_LIMIT_VARIABLE, "")
    try:
        return int(value) if value else DEFAULT_WRITE_LIMIT
    except ValueError:
        logger.warning("%s is not a number; %s bytes apply", WRITE_LIMIT_VARIABLE, DEFAULT_WRITE_LIMIT)
        return DEFAULT_WRITE_LIMIT
