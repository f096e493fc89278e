"""Long-term memory of users across threads."""

from deerflow.memory.base import Fact, Memory, Scope, Section, memory_of
from deerflow.memory.pending_conversation import Ask, Exchange, PendingConversation, own_words
from deerflow.memory.service import MemoryService

__all__ = [
    "Ask",
    "Exchange",
    "Fact",
    "Memory",
    "MemoryService",
    "PendingConversation",
    "Scope",
    "Section",
    "memory_of",
    "own_words",
]
