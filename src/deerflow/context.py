"""RunContext: what one run carries down through agent, middlewares and tools."""

import asyncio
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from deerflow.config import Settings
from deerflow.domain import RunOptions, ThreadFolders
from deerflow.sandbox import Sandbox

Publish = Callable[[Mapping[str, Any]], None]
"""Sends a `custom` event up to the people watching; its `type` says what it is."""


def _nobody(event: Mapping[str, Any]) -> None:
    """Publish to nobody: for agents that run outside a run."""


class FileLocks:
    """One lock per file, so that tool calls running side by side lose none of each other's edits."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def on(self, path: str) -> asyncio.Lock:
        """Return the lock of the file at `path`."""
        return self._locks.setdefault(posixpath.normpath(path), asyncio.Lock())


@dataclass(frozen=True, slots=True)
class RunContext:
    """Identity and capabilities of one run; a sub-agent gets a copy with its `task_id`."""

    run_id: str
    thread_id: str
    user_id: str
    settings: Settings
    folders: ThreadFolders
    sandbox: Sandbox
    options: RunOptions = RunOptions()
    attempt: int = 1
    task_id: str | None = None
    """The task this context belongs to; None for the lead agent."""
    trace_id: str = ""
    is_interactive: bool = True
    publish: Publish = _nobody
    file_locks: FileLocks = field(default_factory=FileLocks)
    """Shared by the lead agent and its sub-agents: they work on the same files."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Context keys of the client that the house has no word for."""
