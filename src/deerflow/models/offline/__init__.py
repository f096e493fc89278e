"""The built-in model that works without network or key, on extractive rules."""

from deerflow.models.offline.model import OfflineChatModel

__all__ = ["OfflineChatModel"]
