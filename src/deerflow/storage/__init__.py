"""What is kept: threads, runs, events, checkpoints and the store."""

from deerflow.storage.base import (
    FENCE,
    AssistantQuery,
    AssistantStore,
    EffectLog,
    EffectState,
    EventLog,
    LogBatch,
    LogEntry,
    RunEnd,
    RunStore,
    Storage,
    ThreadQuery,
    ThreadStore,
    fence,
)
from deerflow.storage.open import data_folder, open_storage
from deerflow.storage.owners import LEASE_SECONDS, OwnerLock

__all__ = [
    "FENCE",
    "LEASE_SECONDS",
    "AssistantQuery",
    "AssistantStore",
    "EffectLog",
    "EffectState",
    "EventLog",
    "LogBatch",
    "LogEntry",
    "OwnerLock",
    "RunEnd",
    "RunStore",
    "Storage",
    "ThreadQuery",
    "ThreadStore",
    "data_folder",
    "fence",
    "open_storage",
]
