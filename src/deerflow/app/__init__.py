"""DeerFlow, put together: the one room that chooses concrete classes and owns their lifetimes."""

from deerflow.app.deerflow import DeerFlow

__all__ = ["DeerFlow"]
