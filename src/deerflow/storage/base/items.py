"""Key-value items that outlive threads: LangGraph's store plus compare-and-swap."""

from abc import abstractmethod
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from langgraph.store.base import BaseStore


class ItemStore(BaseStore):
    """LangGraph's key-value store with a compare-and-swap, so that concurrent changes are not lost."""

    @abstractmethod
    async def acount(
        self,
        namespace_prefix: tuple[str, ...],
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002
    ) -> int:
        """Return how many items a search with this `filter` finds on all its pages."""

    @abstractmethod
    async def areplace(
        self, namespace: tuple[str, ...], key: str, value: Mapping[str, Any], *, seen: datetime | None
    ) -> bool:
        """Put an item only if it has not changed since it was read; return whether it was put.

        Args:
            seen: The item's `updated_at` when it was read; None when there was none.
        """
