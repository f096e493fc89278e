"""Read untrusted files: only regular ones, never a pipe or a device, and never more than a limit."""

import os
import stat
from pathlib import Path

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""O_NONBLOCK: otherwise opening a FIFO blocks until it has a writer."""


def read_regular_text(path: Path, *, max_bytes: int) -> str:
    """Return the UTF-8 text of a regular file; `ValueError` says why it is not read."""
    fd = os.open(path, _FLAGS)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("it is not a regular file")
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"larger than {max_bytes} bytes")
    return content.decode()
