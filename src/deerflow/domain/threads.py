"""A thread: one conversation with its folders, its runs and its state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any


class ThreadStatus(StrEnum):
    """Status of a thread."""

    IDLE = "idle"
    BUSY = "busy"
    INTERRUPTED = "interrupted"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Thread:
    """One conversation as lists show it; its messages are in its checkpoints."""

    id: str
    user_id: str
    status: ThreadStatus
    created_at: datetime
    updated_at: datetime
    metadata: Mapping[str, Any] = field(default_factory=dict)
    title: str | None = None
    interrupts: Mapping[str, Any] = field(default_factory=dict)
    """Pending interrupts by graph task; empty unless the thread is interrupted."""
    asks: bool = False
    """The last answer is a question to the user."""
    error: str | None = None
    """Error of its last run; None unless its status is `error`."""


@dataclass(frozen=True, slots=True)
class ThreadFolders:
    """Locations of a thread's files on this host."""

    thread_id: str
    root: Path
    """`…/threads/{thread_id}`: everything that is deleted with the thread."""

    @property
    def user_data(self) -> Path:
        return self.root / "user-data"

    @property
    def workspace(self) -> Path:
        return self.user_data / "workspace"

    @property
    def uploads(self) -> Path:
        return self.user_data / "uploads"

    @property
    def outputs(self) -> Path:
        return self.user_data / "outputs"

    @property
    def acp_workspace(self) -> Path:
        """Working directory of ACP agents; commands may read it."""
        return self.root / "acp-workspace"

    def create(self) -> None:
        """Create the missing folders."""
        if self.outputs.is_dir():  # created last
            return
        self.root.parent.mkdir(parents=True, exist_ok=True)
        self.root.mkdir(mode=0o700, exist_ok=True)  # not accessible to other users of this host
        for folder in (self.user_data, self.workspace, self.uploads, self.outputs):
            folder.mkdir(exist_ok=True)


DOCUMENTS = frozenset({".pdf", ".doc", ".docx", ".ppt", ".pptx", ".xls", ".xlsx"})
"""Suffixes for which a conversion to Markdown is attempted; a failure is reported."""


def companion_of(filename: str) -> str | None:
    """Return the name of the Markdown file for a document; None for any other file."""
    return f"{filename}.md" if PurePosixPath(filename).suffix.lower() in DOCUMENTS else None
