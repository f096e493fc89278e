"""When settings take effect, which have none, and reports of configured features that do not work."""

from dataclasses import dataclass

RESTART_ONLY = frozenset(
    {
        "log_level",
        "logging",
        "metrics",
        "telemetry",
        "tracing",
        "sandbox",
        "memory.manager_class",
        "embeddings",
        "database",
        "checkpointer",
        "run_ownership",
        "channels",
        "channel_connections",
        "scheduler",
    }
)
"""Sections and settings whose changes apply from the next start; all others apply from the next run."""

WAITING = {
    "auth": "users and sign-in",
    "authorization": "users and sign-in",
    "channel_connections": "channels",
    "channels": "channels",
    "dedupe_storage": "channels",
}
"""Settings without effect yet, with the feature that will read them; remove a name when code reads it."""

REMOVED = frozenset(
    {
        "agent_storage",
        "loop_detection.max_tracked_threads",
        "mcpInterceptors",
        "mcp_tasks",
        "memory.backend_config.storage_path",
        "plugins",
        "run_events",
        "sandbox.ownership",
        "scheduler.lease_seconds",
        "scheduler.multi_instance",
        "stream_bridge",
        "tool_progress.max_tracked_threads",
    }
)
"""Settings of DeerFlow 2 that do not exist here; files that have them load, with a warning."""

SECURITY = frozenset({"auth", "authorization", "guardrails", "sandbox", "skill_scan"})
"""Security sections: their faults are reported first."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A configured feature that does not work."""

    key: str
    """The setting that configures it: `tools[2]`, `skills.path`."""
    text: str
    fix: str = ""
    is_security: bool = False
    is_broken: bool = True
    """False for a notice: no configured feature is missing."""

    def __str__(self) -> str:
        return "; ".join(filter(None, (f"{self.key}: {self.text}", self.fix)))
