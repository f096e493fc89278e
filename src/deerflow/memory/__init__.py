"""What is remembered between threads."""

from deerflow.memory.base import Fact, Memory, Scope, Section, memory_of
from deerflow.memory.memories import Memories
from deerflow.memory.talk import Ask, Exchange, Talk, own_words

__all__ = [
    "Ask",
    "Exchange",
    "Fact",
    "Memories",
    "Memory",
    "Scope",
    "Section",
    "Talk",
    "memory_of",
    "own_words",
]
