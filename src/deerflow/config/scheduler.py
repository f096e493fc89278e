"""Settings of schedules, MCP tasks and plug-ins."""

from typing import Any

from pydantic import Field

from deerflow.config.section import Section


class SchedulerSettings(Section):
    """Runs that start on time."""

    enabled: bool = Field(True, description="Start them.")
    multi_instance: bool = Field(
        False, description="Accepted for older files: any number of servers may share the schedule."
    )
    poll_interval_seconds: int = Field(
        5, ge=1, le=300, description="How long a change of another server may take."
    )
    lease_seconds: int = Field(
        120, ge=5, le=3600, description="Accepted for older files: no server owns a schedule."
    )
    max_concurrent_runs: int = Field(3, ge=1, le=32, description="Scheduled runs at once.")
    min_once_delay_seconds: int = Field(
        60, ge=1, le=86_400, description="The nearest time a single run may have."
    )


class McpTasksSettings(Section):
    """Long-running tasks of MCP servers."""

    enabled: bool = Field(False, description="Follow them.")
    poll_interval_seconds: int = Field(5, ge=1, le=300, description="How often a task is asked for news.")
    lease_seconds: int = Field(
        120, ge=5, le=3600, description="Seconds after which a silent server's task is taken."
    )
    max_concurrent_polls: int = Field(8, ge=1, le=64, description="Tasks asked at once.")
    max_poll_backoff_seconds: int = Field(300, ge=1, le=3600, description="The longest wait after failures.")
    input_required_poll_interval_seconds: int = Field(
        60, ge=5, le=3600, description="The wait while a task waits for a person."
    )
    tracking_degraded_after_errors: int = Field(3, ge=1, le=100, description="Failures that are told.")
    max_result_bytes: int = Field(65_536, ge=1024, le=10_485_760, description="Bytes kept of a result.")
    result_preview_max_chars: int = Field(2000, ge=64, le=100_000, description="Characters shown of it.")


class PluginSettings(Section):
    """One entry of `plugins:`."""

    name: str = Field(min_length=1, description="The plug-in's name.")
    package: str | None = Field(None, description="The package it comes in.")
    use: str | None = Field(None, description="Its class as `module:Class`.")
    enabled: bool = Field(True, description="Load it.")
    required: bool = Field(False, description="Refuse to start without it.")
    config: dict[str, Any] = Field({}, description="What it is made with.")
