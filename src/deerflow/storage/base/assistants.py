"""Assistants in all their versions, and how they are searched."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from deerflow.domain import Assistant


@dataclass(frozen=True, slots=True)
class AssistantQuery:
    """Which assistants a search returns."""

    user_id: str
    graph_id: str | None = None
    name: str | None = None
    """A part of the name, in any case."""
    metadata: Mapping[str, Any] | None = None
    limit: int = 10
    offset: int = 0
    sort_by: Literal["assistant_id", "graph_id", "name", "created_at", "updated_at"] = "created_at"
    descending: bool = True


class AssistantStore(ABC):
    """Assistants in all their versions."""

    @abstractmethod
    async def create(self, assistant: Assistant) -> Assistant:
        """Keep a new assistant; `ConflictError` when its id is taken."""

    @abstractmethod
    async def get(self, assistant_id: str, user_id: str) -> Assistant:
        """Return an assistant of this user in its latest version."""

    @abstractmethod
    async def add_version(self, assistant: Assistant) -> Assistant:
        """Keep a changed assistant as its next version, which becomes the latest."""

    @abstractmethod
    async def versions(self, assistant_id: str, user_id: str, *, limit: int, offset: int) -> list[Assistant]:
        """Return the versions of an assistant, newest first."""

    @abstractmethod
    async def set_latest(self, assistant_id: str, user_id: str, version: int) -> Assistant:
        """Make an older version the latest."""

    @abstractmethod
    async def search(self, query: AssistantQuery) -> list[Assistant]: ...

    @abstractmethod
    async def count(self, query: AssistantQuery) -> int: ...

    @abstractmethod
    async def delete(self, assistant_id: str, user_id: str) -> None: ...
