"""Interfaces of the stores, independent of the database: one file per store."""

from collections.abc import Callable
from dataclasses import dataclass

from deerflow.storage.base.assistants import AssistantQuery, AssistantStore
from deerflow.storage.base.checkpoints import Amount, CheckpointStore, StoredSizes
from deerflow.storage.base.effects import EffectLog, EffectState
from deerflow.storage.base.events import EventLog, LogBatch, LogEntry
from deerflow.storage.base.fencing import FENCE, fence
from deerflow.storage.base.items import ItemStore
from deerflow.storage.base.jobs import Jobs
from deerflow.storage.base.retention import Retention
from deerflow.storage.base.runs import RunEnd, RunStore
from deerflow.storage.base.threads import ThreadQuery, ThreadStore
from deerflow.storage.signals import Signals

__all__ = [
    "FENCE",
    "Amount",
    "AssistantQuery",
    "AssistantStore",
    "CheckpointStore",
    "EffectLog",
    "EffectState",
    "EventLog",
    "ItemStore",
    "Jobs",
    "LogBatch",
    "LogEntry",
    "Retention",
    "RunEnd",
    "RunStore",
    "Storage",
    "StoredSizes",
    "ThreadQuery",
    "ThreadStore",
    "fence",
]


@dataclass(frozen=True, slots=True)
class Storage:
    """All stores of one database."""

    threads: ThreadStore
    runs: RunStore
    events: EventLog
    effects: EffectLog
    assistants: AssistantStore
    checkpoints: CheckpointStore
    store: ItemStore
    signals: Signals
    retention: Retention
    jobs: Jobs | None = None
    """None for SQLite, where every process polls for runs itself."""
    shorten_timeouts: Callable[[], None] = lambda: None
    """Shorten all waits for an unreachable database; called when the process exits."""
