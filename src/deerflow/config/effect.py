"""When settings take effect: at once, at the next start, or not yet."""

RESTART_ONLY = frozenset(
    {
        "log_level",
        "logging",
        "metrics",
        "telemetry",
        "tracing",
        "sandbox",
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
"""Sections whose changes count from the next start; all others count from the next run."""

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
"""What is read and checked but has no effect yet; the room that reads one takes its name out of here."""
