"""The error tree: every failure that a caller, an operator or a model can act on."""

from collections.abc import Iterable, Sequence
from typing import ClassVar


class DeerFlowError(Exception):
    """Base class: `code` is for programs, `str(error)` is for people."""

    code: ClassVar[str] = "internal"


class ConfigError(DeerFlowError):
    """A setting is wrong; the message names the key, the value and what is allowed."""

    code = "config_invalid"


class NotFoundError(DeerFlowError):
    """The requested object does not exist, or not for this user."""

    code = "not_found"

    def __init__(self, kind: str, name: str, *, known: Iterable[str] = (), advice: str = "") -> None:
        choices = ", ".join(known)
        parts = [f"{kind} '{name}' not found", f"there are: {choices}" if choices else "", advice]
        super().__init__("; ".join(filter(None, parts)))
        self.kind = kind
        self.name = name


class InvalidInputError(DeerFlowError):
    """The caller's input cannot be used; the message says what to change."""

    code = "invalid_input"


class AddressRefusedError(InvalidInputError):
    """The server may not connect to this address; the message names it and the setting to allow it."""


class SkillBlockedError(InvalidInputError):
    """A skill is not accepted; `rules` has the ids of the rules that it breaks, `reasons` a line for each."""

    code = "skill_blocked"

    def __init__(self, name: str, rules: Sequence[str], reasons: Sequence[str]) -> None:
        more = f"; and {len(reasons) - 5} more" if len(reasons) > 5 else ""
        shown = "; ".join(reasons[:5])
        super().__init__(f"the skill '{name}' is blocked, nothing was changed: {shown}{more}")
        self.rules = tuple(dict.fromkeys(rules))
        self.reasons = tuple(reasons)


class TooLargeError(DeerFlowError):
    """The caller's input exceeds a size limit; the message names the limit."""

    code = "too_large"


class ConflictError(DeerFlowError):
    """The request is valid but conflicts with the current state."""

    code = "conflict"


class ChangedError(ConflictError):
    """The object to replace has changed since the caller read it."""

    code = "changed"


class UnsupportedTypeError(DeerFlowError):
    """The operation does not support objects of this type."""

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
    """Another worker owns this run now; this attempt may no longer write."""

    code = "stale_attempt"


class RollbackWantedError(ConflictError):
    """A rollback of the run was requested while it was ending in another way."""

    code = "rollback_wanted"


class ModelError(DeerFlowError):
    """A model could not be reached or refused; the message says which one and why.

    Args:
        reason: The kind of failure, such as `rate_limited`.
        in_chinese: The message in Chinese; defaults to `text`.
    """

    code = "model_failed"

    def __init__(self, text: str, *, reason: str = "provider_error", in_chinese: str = "") -> None:
        super().__init__(text)
        self.reason = reason
        self.in_chinese = in_chinese or text


class EmbeddingError(DeerFlowError):
    """An embedding model did not answer; texts are found by words meanwhile."""

    code = "embedding_failed"


class ProgramError(DeerFlowError):
    """A program on this machine could not be started; the message says which one and why."""

    code = "program_failed"


class McpError(DeerFlowError):
    """A request to an MCP server failed; the message says which server and why."""

    code = "mcp_failed"


class AcpError(DeerFlowError):
    """An external ACP agent failed; the message says why and what it did so far."""

    code = "acp_failed"


class WebError(DeerFlowError):
    """A search or a page of the web failed; the message names the provider or the page, and the reason."""

    code = "web_failed"


class RateLimitedError(WebError):
    """A provider refuses further requests for now."""

    def __init__(self, message: str, *, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class SandboxError(DeerFlowError):
    """A sandbox operation failed; the message is written for the model."""

    code = "sandbox_failed"


class PathRefusedError(SandboxError):
    """The path is outside the folders that this thread may use."""

    code = "path_refused"


class SandboxUnavailableError(SandboxError):
    """Commands cannot run here; the message has the reason and the fix."""

    code = "sandbox_unavailable"


class SandboxTimeoutError(SandboxError):
    """The command exceeded its timeout."""

    code = "sandbox_timeout"

    def __init__(self, command: str, seconds: float, output: str = "") -> None:
        super().__init__(f"still running after {seconds:g}s, stopped: {command}")
        self.command = command
        self.seconds = seconds
        self.output = output


class StorageError(DeerFlowError):
    """A database operation failed; the message says why and what the operator can do."""

    code = "storage_failed"


class StorageAwayError(StorageError):
    """The database was unreachable for too long; a retry may succeed once it is back."""
