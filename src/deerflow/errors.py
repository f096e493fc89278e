"""The whole error tree: every failure that a caller, an operator or a model can act on."""

from collections.abc import Iterable
from typing import ClassVar


class DeerFlowError(Exception):
    """Base class: `code` is for programs, `str(error)` is for people."""

    code: ClassVar[str] = "internal"


class ConfigError(DeerFlowError):
    """A setting is wrong; the message names the key, the value and what is allowed."""

    code = "config_invalid"


class NotFoundError(DeerFlowError):
    """The thing that was asked for does not exist, or not for this user."""

    code = "not_found"

    def __init__(self, kind: str, name: str, *, known: Iterable[str] = ()) -> None:
        choices = ", ".join(known)
        super().__init__(f"{kind} '{name}' not found" + (f"; there are: {choices}" if choices else ""))
        self.kind = kind
        self.name = name


class InvalidInputError(DeerFlowError):
    """What the caller sent cannot be used; the message says what to change."""

    code = "invalid_input"


class AddressRefusedError(InvalidInputError):
    """The network address may not be dialled for others; the message names it and what would permit it."""


class TooLargeError(DeerFlowError):
    """What the caller sent is above a size limit; the message names the limit."""

    code = "too_large"


class ConflictError(DeerFlowError):
    """The request is fine but does not fit the present state."""

    code = "conflict"


class ChangedError(ConflictError):
    """What was to be replaced is not what the caller saw last."""

    code = "changed"


class UnsupportedTypeError(DeerFlowError):
    """The thing is of a kind with which this cannot be done."""

    code = "unsupported_type"


class ThreadBusyError(ConflictError):
    """The thread already has a run in flight."""

    code = "thread_busy"

    def __init__(self, thread_id: str, run_id: str) -> None:
        super().__init__(
            f"thread {thread_id} is busy with run {run_id}; wait for it, cancel it, "
            "or send multitask_strategy 'interrupt', 'rollback' or 'enqueue'"
        )
        self.thread_id = thread_id
        self.run_id = run_id


class StaleAttemptError(ConflictError):
    """Another worker owns this run by now; this attempt may write no more."""

    code = "stale_attempt"


class RollbackWantedError(ConflictError):
    """Somebody asked for the run to be rolled back while it was ending in another way."""

    code = "rollback_wanted"


class ModelError(DeerFlowError):
    """A model could not be reached or refused; the message says which one and why.

    Args:
        reason: The kind of failure in a word, such as `rate_limited`.
        in_chinese: The message for people who write Chinese; the same as `text` when absent.
    """

    code = "model_failed"

    def __init__(self, text: str, *, reason: str = "provider_error", in_chinese: str = "") -> None:
        super().__init__(text)
        self.reason = reason
        self.in_chinese = in_chinese or text


class ProgramError(DeerFlowError):
    """A program of this machine could not be started; the message says which one and why."""

    code = "program_failed"


class McpError(DeerFlowError):
    """An MCP server could not do what was asked; the message says which one and why."""

    code = "mcp_failed"


class AcpError(DeerFlowError):
    """An agent of another program could not do its work; the message says why and what it did so far."""

    code = "acp_failed"


class SandboxError(DeerFlowError):
    """A sandbox could not do what was asked; the message is written for the model."""

    code = "sandbox_failed"


class PathRefusedError(SandboxError):
    """The path leaves the folders that this thread may use."""

    code = "path_refused"


class SandboxUnavailableError(SandboxError):
    """Commands cannot run here; the message has the reason and the fix."""

    code = "sandbox_unavailable"


class SandboxTimeoutError(SandboxError):
    """The command was still running when its time was up."""

    code = "sandbox_timeout"

    def __init__(self, command: str, seconds: float, output: str = "") -> None:
        super().__init__(f"still running after {seconds:g}s, stopped: {command}")
        self.command = command
        self.seconds = seconds
        self.output = output


class StorageError(DeerFlowError):
    """The database could not do what was asked; the message says why and what the operator can do."""

    code = "storage_failed"


class StorageAwayError(StorageError):
    """The database could not be reached for too long; the same work may go well once it is back."""
