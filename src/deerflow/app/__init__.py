"""DeerFlow, put together: the one room that chooses concrete classes and owns their lifetimes."""

from deerflow.app.house import DeerFlow

__all__ = ["DeerFlow"]
