"""A thread: one conversation with its folders, its runs and its state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any


class ThreadStatus(StrEnum):
    """What a thread is doing."""

    IDLE = "idle"
    BUSY = "busy"
    INTERRUPTED = "interrupted"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Thread:
    """One conversation as lists show it; its messages live in its checkpoints."""

    id: str
    user_id: str
    status: ThreadStatus
    created_at: datetime
    updated_at: datetime
    metadata: Mapping[str, Any] = field(default_factory=dict)
    title: str | None = None
    interrupts: Mapping[str, Any] = field(default_factory=dict)
    """The questions that wait for an answer, by the graph's task; empty unless it is interrupted."""
    asks: bool = False
    """The last answer is a question to the person."""
    error: str | None = None
    """Why its last run failed; None unless its status is `error`."""


@dataclass(frozen=True, slots=True)
class ThreadFolders:
    """Where a thread's files are on this host."""

    thread_id: str
    root: Path
    """`…/threads/{thread_id}`: everything that goes when the thread is deleted."""

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
        """Where agents of other programs work; commands may read it."""
        return self.root / "acp-workspace"

    def create(self) -> None:
        """Make the folders that are not there yet."""
        if self.outputs.is_dir():  # the last one that is made
            return
        self.root.parent.mkdir(parents=True, exist_ok=True)
        self.root.mkdir(mode=0o700, exist_ok=True)  # other users of this host have no business in it
        for folder in (self.user_data, self.workspace, self.uploads, self.outputs):
            folder.mkdir(exist_ok=True)
