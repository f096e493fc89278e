"""Store of assistants with all their versions, and their search query."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from deerflow.domain import Assistant


@dataclass(frozen=True, slots=True)
class AssistantQuery:
    """Filter, order and page of an assistant search."""

    user_id: str
    graph_id: str | None = None
    name: str | None = None
    """A substring of the name, case-insensitive."""
    metadata: Mapping[str, Any] | None = None
    limit: int = 10
    offset: int = 0
    sort_by: Literal["assistant_id", "graph_id", "name", "created_at", "updated_at"] = "created_at"
    descending: bool = True


class AssistantStore(ABC):
    """Assistants with all their versions."""

    @abstractmethod
    async def create(self, assistant: Assistant) -> Assistant:
        """Store a new assistant; raise `ConflictError` when its id is taken."""

    @abstractmethod
    async def get(self, assistant_id: str, user_id: str) -> Assistant:
        """Return the latest version of an assistant of this user."""

    @abstractmethod
    async def add_version(self, assistant: Assistant) -> Assistant:
        """Store a changed assistant as its next version, which becomes the latest."""

    @abstractmethod
    async def versions(self, assistant_id: str, user_id: str, *, limit: int, offset: int) -> list[Assistant]:
        """Return the versions of an assistant, newest first."""

    @abstractmethod
    async def set_latest(self, assistant_id: str, user_id: str, version: int) -> Assistant:
        """Make an existing version the latest."""

    @abstractmethod
    async def search(self, query: AssistantQuery) -> list[Assistant]: ...

    @abstractmethod
    async def count(self, query: AssistantQuery) -> int: ...

    @abstractmethod
    async def delete(self, assistant_id: str, user_id: str) -> None: ...
