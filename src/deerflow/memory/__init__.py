"""Long-term memory of users across threads."""

from deerflow.memory.base import (
    Ask,
    Fact,
    Memory,
    MemorySection,
    MemoryTurn,
    PendingConversation,
    Scope,
    memory_of,
    own_words,
)
from deerflow.memory.recall import FactIndex, RecalledItem
from deerflow.memory.service import MemoryService
from deerflow.memory.store import MemoryStore

__all__ = [
    "Ask",
    "Fact",
    "FactIndex",
    "Memory",
    "MemorySection",
    "MemoryService",
    "MemoryStore",
    "MemoryTurn",
    "PendingConversation",
    "RecalledItem",
    "Scope",
    "memory_of",
    "own_words",
]
