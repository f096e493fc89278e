"""Domain types: thread, run, event, assistant."""

from deerflow.domain.ids import DEFAULT_USER, folder_name, is_thread_id, new_id
from deerflow.domain.runs import (
    END,
    LEAD_AGENT,
    Assistant,
    CancelAction,
    DisconnectMode,
    ModelUse,
    MultitaskStrategy,
    RunOptions,
    RunRecord,
    RunRequest,
    RunStatus,
    SkillUse,
    StreamEvent,
    TokenUse,
    number_in,
    seq_of,
)
from deerflow.domain.threads import Thread, ThreadFolders, ThreadStatus, companion_of

__all__ = [
    "DEFAULT_USER",
    "END",
    "LEAD_AGENT",
    "Assistant",
    "CancelAction",
    "DisconnectMode",
    "ModelUse",
    "MultitaskStrategy",
    "RunOptions",
    "RunRecord",
    "RunRequest",
    "RunStatus",
    "SkillUse",
    "StreamEvent",
    "Thread",
    "ThreadFolders",
    "ThreadStatus",
    "TokenUse",
    "companion_of",
    "folder_name",
    "is_thread_id",
    "new_id",
    "number_in",
    "seq_of",
]
