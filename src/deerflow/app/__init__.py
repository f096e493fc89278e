"""The composition root: chooses concrete classes and owns their lifetimes."""

from deerflow.app.deerflow import DeerFlow

__all__ = ["DeerFlow"]
