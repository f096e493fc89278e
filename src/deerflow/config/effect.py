"""Lists the settings that take effect at the next start, and those without effect in this version."""

RESTART_ONLY = frozenset(
    {
        "log_level",
        "logging",
        "metrics",
        "telemetry",
        "tracing",
        "sandbox",
        "skills.container_path",
        "database",
        "checkpointer",
        "run_events",
        "run_ownership",
        "stream_bridge",
        "plugins",
        "channels",
        "channel_connections",
        "scheduler",
        "mcp_tasks",
    }
)
"""Sections and settings whose changes apply from the next start; all others apply from the next run."""

WAITING = frozenset(
    {
        "agent_storage",
        "auth",
        "authorization",
        "channel_connections",
        "channels",
        "dedupe_storage",
        "loop_detection.max_tracked_threads",
        "mcp_tasks",
        "memory.backend_config.storage_path",
        "plugins",
        "run_events",
        "sandbox.ownership",
        "skill_evolution",
        "skill_scan",
        "skills.deferred_discovery",
        "stream_bridge",
        "tool_progress.max_tracked_threads",
    }
)
"""Settings that are validated but have no effect yet; remove a name when code starts to read it."""
