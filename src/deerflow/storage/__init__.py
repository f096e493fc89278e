"""Storage of threads, runs, events, checkpoints and store items."""

from deerflow.storage.assistants import AssistantQuery, AssistantStore
from deerflow.storage.checkpoint_rows import Amount, StoredSizes
from deerflow.storage.checkpoint_saver import FENCE, CheckpointSaver, fence
from deerflow.storage.effects import EffectLog, EffectState
from deerflow.storage.events import EventLog, LogBatch, LogEntry
from deerflow.storage.items import ItemStore
from deerflow.storage.open import Storage, data_folder, open_storage
from deerflow.storage.owners import LEASE_SECONDS, OwnerLock
from deerflow.storage.passages import PassageRow, PassageStore, SourceRow
from deerflow.storage.retention import Retention
from deerflow.storage.run_queue import RunEnd
from deerflow.storage.runs import RunStore
from deerflow.storage.signals import QUEUE, Signals, SignalWatch, owner_topic, run_topic, thread_topic
from deerflow.storage.threads import ThreadQuery, ThreadStore

__all__ = [
    "FENCE",
    "LEASE_SECONDS",
    "QUEUE",
    "Amount",
    "AssistantQuery",
    "AssistantStore",
    "CheckpointSaver",
    "EffectLog",
    "EffectState",
    "EventLog",
    "ItemStore",
    "LogBatch",
    "LogEntry",
    "OwnerLock",
    "PassageRow",
    "PassageStore",
    "Retention",
    "RunEnd",
    "RunStore",
    "SignalWatch",
    "Signals",
    "SourceRow",
    "Storage",
    "StoredSizes",
    "ThreadQuery",
    "ThreadStore",
    "data_folder",
    "fence",
    "open_storage",
    "owner_topic",
    "run_topic",
    "thread_topic",
]
