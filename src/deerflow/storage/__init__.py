"""Storage of threads, runs, events, checkpoints and store items."""

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
from deerflow.storage.signals import QUEUE, Signals, Watch, owner_topic, run_topic, thread_topic

__all__ = [
    "FENCE",
    "LEASE_SECONDS",
    "QUEUE",
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
    "Signals",
    "Storage",
    "ThreadQuery",
    "ThreadStore",
    "Watch",
    "data_folder",
    "fence",
    "open_storage",
    "owner_topic",
    "run_topic",
    "thread_topic",
]
