"""`present_files`: shows finished files to the user."""

import asyncio
import errno
import os
import posixpath
import stat
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import ToolMessage
from langgraph.types import Command
from pydantic import BaseModel, BeforeValidator, Field

from deerflow.sandbox.openat2 import O_DIRECTORY, O_PATH, open_beneath
from deerflow.tools.define import Runtime, VirtualPath, refuse, tool_of

OUTPUTS = "/mnt/user-data/outputs"
MAX_FILES = 100
_NOT_REGULAR = "it is not a regular file; name the files in it one by one."
_UNREADABLE = "it cannot be read."


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class PresentFilesArguments(BaseModel):
    """What `present_files` takes."""

    filepaths: Annotated[list[VirtualPath], BeforeValidator(_as_list)] = Field(
        min_length=1, max_length=MAX_FILES, description=f"Absolute paths of files below {OUTPUTS}."
    )


@tool_of("present_files", PresentFilesArguments, is_safe_to_repeat=True)
async def present_files_tool(*, filepaths: list[str], runtime: Runtime) -> Command[Any]:
    """Show finished files to the user, who sees nothing that was not presented.

    Only files below /mnt/user-data/outputs can be shown: write or copy them there first. Call it once,
    with all files, when they are done.
    """
    root = runtime.context.folders.outputs
    faults = await asyncio.to_thread(lambda: {path: _fault(root, path) for path in filepaths})
    shown = list(dict.fromkeys(posixpath.normpath(path) for path, fault in faults.items() if fault is None))
    refused = [f"{path} was not shown: {fault}" for path, fault in faults.items() if fault is not None]
    if not shown:
        raise refuse(" ".join(refused))
    text = " ".join([f"The user can now see {', '.join(shown)}.", *refused])
    message = ToolMessage(text, tool_call_id=runtime.tool_call_id or "", name="present_files")
    return Command(update={"artifacts": shown, "messages": [message]})


def _fault(root: Path, path: str) -> str | None:
    """Return why the file cannot be shown, or None; follows no link out of the outputs folder."""
    clean = posixpath.normpath(path)
    if not clean.startswith(f"{OUTPUTS}/"):
        return f"it is not below {OUTPUTS}; copy it there first."
    try:
        return None if stat.S_ISREG(_mode(root, clean)) else _NOT_REGULAR
    except (FileNotFoundError, NotADirectoryError):
        return "there is no such file; write it first."
    except OSError as error:
        # The link's target is not reported: that would reveal which files this host has.
        is_link = error.errno in (errno.ELOOP, errno.EXDEV)
        return f"it is a link that leaves {OUTPUTS}; copy the file itself there." if is_link else _UNREADABLE


def _mode(root: Path, path: str) -> int:
    folder = os.open(root, O_PATH | O_DIRECTORY)
    try:
        fd = open_beneath(folder, path.removeprefix(f"{OUTPUTS}/").split("/"), O_PATH)
        try:
            return os.fstat(fd).st_mode
        finally:
            os.close(fd)
    finally:
        os.close(folder)
