"""Small things that outlive threads: LangGraph's key-value store, and a little more."""

from abc import abstractmethod
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from langgraph.store.base import BaseStore


class ItemStore(BaseStore):
    """LangGraph's key-value store, in which an item can also be changed without losing others' changes."""

    @abstractmethod
    async def areplace(
        self, namespace: tuple[str, ...], key: str, value: Mapping[str, Any], *, seen: datetime | None
    ) -> bool:
        """Put an item only where it is still the one that was seen; tell whether that was so.

        Args:
            seen: The item's `updated_at` when it was read; None when there was none.
        """
