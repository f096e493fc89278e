"""Admits, executes, logs, streams and stops runs, and resumes them after a crash."""

from deerflow.runtime.event_log import StreamBridge
from deerflow.runtime.run_manager import RunManager
from deerflow.runtime.serialization import message_json, to_json
from deerflow.runtime.states import ThreadStates
from deerflow.runtime.translate import CLIENT_MODES, is_wanted, visible_values
from deerflow.runtime.worker import RunSetup, Worker

__all__ = [
    "CLIENT_MODES",
    "RunManager",
    "RunSetup",
    "StreamBridge",
    "ThreadStates",
    "Worker",
    "is_wanted",
    "message_json",
    "to_json",
    "visible_values",
]
