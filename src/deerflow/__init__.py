"""DeerFlow: a super agent harness.

The public names are imported on first use, so that `deerflow --help` and light imports stay quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deerflow.app import DeerFlow
    from deerflow.client import AsyncDeerFlowClient, DeerFlowClient
    from deerflow.config import Settings
    from deerflow.domain import StreamEvent
    from deerflow.errors import DeerFlowError

_HOME = {
    "AsyncDeerFlowClient": "deerflow.client",
    "DeerFlow": "deerflow.app",
    "DeerFlowClient": "deerflow.client",
    "DeerFlowError": "deerflow.errors",
    "Settings": "deerflow.config",
    "StreamEvent": "deerflow.domain",
}

__all__ = ["AsyncDeerFlowClient", "DeerFlow", "DeerFlowClient", "DeerFlowError", "Settings", "StreamEvent"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'deerflow' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)
