"""`present_files`: shows finished files to the user."""

import asyncio
import posixpath
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import ToolMessage
from langgraph.types import Command
from pydantic import BaseModel, BeforeValidator, Field

from deerflow.tools.define import Runtime, VirtualPath, refuse, tool_of

OUTPUTS = "/mnt/user-data/outputs"
MAX_FILES = 100


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
    """Say why the file cannot be shown, following no link out of the outputs folder."""
    clean = posixpath.normpath(path)
    if not clean.startswith(f"{OUTPUTS}/"):
        return f"it is not below {OUTPUTS}; copy it there first."
    try:
        file = (root / clean.removeprefix(f"{OUTPUTS}/")).resolve(strict=True)
        if not file.is_relative_to(root.resolve()):
            return f"it is a link that leaves {OUTPUTS}; copy the file itself there."
        return None if file.is_file() else "it is not a regular file; name the files in it one by one."
    except (FileNotFoundError, NotADirectoryError):
        return "there is no such file; write it first."
    except (OSError, RuntimeError):  # RuntimeError: a loop of links, before Python 3.13
        return "it cannot be read."
