"""File access of an ACP agent, limited to its workspace and to a maximum size."""

import os
import stat
from pathlib import Path

from deerflow.errors import PathRefusedError, TooLargeError

MAX_FILE_BYTES = 10 * 1024 * 1024


def read_lines(workspace: Path, path: str, *, line: int | None = None, limit: int | None = None) -> str:
    """Return a text file, or `limit` lines of it starting at line `line`."""
    # O_NONBLOCK: opening a FIFO in the workspace must not block.
    descriptor = os.open(inside(workspace, path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise PathRefusedError(f"{path} is not a file")
        if about.st_size > MAX_FILE_BYTES:
            raise TooLargeError(f"{path} has {about.st_size} bytes; {MAX_FILE_BYTES} may be read at once")
        text = file.read(MAX_FILE_BYTES).decode(errors="replace")
    if line is None and limit is None:
        return text
    first = max(line or 1, 1) - 1
    lines = text.splitlines(keepends=True)
    return "".join(lines[first : None if limit is None else first + limit])


def write_text(workspace: Path, path: str, content: str) -> None:
    """Write a text file and create its parent folders."""
    data = content.encode(errors="replace")
    if len(data) > MAX_FILE_BYTES:
        raise TooLargeError(f"{path} would have {len(data)} bytes; {MAX_FILE_BYTES} may be written at once")
    target = inside(workspace, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and not target.is_file():
        raise PathRefusedError(f"{path} is not a file")
    target.write_bytes(data)


def inside(workspace: Path, path: str) -> Path:
    """Return `path` with links resolved; reject a path outside the workspace."""
    root = workspace.resolve()
    try:
        target = (root / path).resolve()
    except (ValueError, OSError, RuntimeError) as error:
        raise PathRefusedError(f"{path[:200]!r} is no usable path") from error
    if not target.is_relative_to(root):
        raise PathRefusedError(f"{path[:200]} is outside the workspace {root}")
    return target
