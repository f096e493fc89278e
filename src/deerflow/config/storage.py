"""Settings of the database, runs and schedules."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Literal

from pydantic import Field

from deerflow.config.section import Section


class DatabaseSettings(Section):
    """The database of threads, runs, events and checkpoints."""

    backend: Literal["memory", "sqlite", "postgres"] = Field(
        "sqlite", description="`sqlite` for one server, `postgres` for several, `memory` to store nothing."
    )
    sqlite_dir: str | None = Field(
        None, description="Folder of the SQLite file. Absent: `data` in the home folder."
    )
    postgres_url: str = Field("", description="With `postgres`: `postgresql://user:password@host/database`.")
    postgres_schema: str = Field("", description="With `postgres`: schema. Empty: the user's default.")
    echo_sql: bool = Field(
        False, description="With `postgres`: log every statement without its values, for debugging."
    )
    pool_size: int = Field(5, ge=1, description="With `postgres`: number of connections; one of them writes.")
    pool_recycle: int = Field(
        300, gt=0, description="With `postgres`: maximum age of a connection in seconds."
    )
    command_timeout: float | None = Field(
        30,
        gt=0,
        description="With `postgres`: maximum duration of a statement, and of waiting for a database that "
        "cannot be reached, in seconds.",
    )


class CheckpointerSettings(Section):
    """The older form of `database:`; used when there is no `database:` section."""

    type: Literal["memory", "sqlite", "postgres"] = Field(description="Kind of database.")
    connection_string: str | None = Field(None, description="Path of the SQLite file, or URL of PostgreSQL.")
    postgres_schema: str = Field("", description="With `postgres`: schema.")


def database_from(checkpointer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `database:` section that is equivalent to an older `checkpointer:` section."""
    kind, where = checkpointer.get("type"), checkpointer.get("connection_string")
    if kind == "postgres":
        return {
            "backend": kind,
            "postgres_url": where,
            "postgres_schema": checkpointer.get("postgres_schema"),
        }
    if kind != "sqlite" or where == ":memory:":
        return {"backend": "memory" if kind in ("memory", "sqlite") else None}
    return {"backend": kind, "sqlite_dir": str(PurePath(where).parent) if isinstance(where, str) else None}


class RunSettings(Section):
    """Limits of runs, and retention of their data."""

    timeout_seconds: float | None = Field(
        None,
        gt=0,
        description="Seconds after which a run is stopped with status `timeout`. Absent: no limit.",
    )
    max_attempts: int = Field(
        5,
        ge=1,
        description="Maximum number of attempts of a run whose worker died; then it ends with an error.",
    )
    max_parallel_tool_calls: int = Field(
        8,
        ge=1,
        description="Maximum number of tool calls of one answer at once; further ones wait. Calls that start "
        "sub-agents do not count: `subagents` limits those.",
    )
    snapshot_max_bytes: int = Field(
        64 * 1024 * 1024,
        ge=0,
        description="Maximum total size in bytes of a thread's files for which a snapshot is taken before a "
        "run, so that a rollback restores them; 0: only if there are no files.",
    )
    webhook_allow_cidrs: tuple[str, ...] = Field(
        (),
        description="Private or reserved networks, such as `10.0.0.0/8`, that the `webhook` of a run, MCP "
        "servers set over HTTP and `skills.catalogues` may use; public addresses are always allowed.",
    )
    snapshots_kept: int = Field(20, ge=1, description="Maximum number of snapshots per thread.")
    retention_days: float | None = Field(
        None, gt=0, description="Days after which the events of an ended run are deleted. Absent: never."
    )
    checkpoints_kept: int | None = Field(
        None,
        ge=1,
        description="Number of newest checkpoints that a thread keeps at the end of a run; a thread cannot "
        "be reset to deleted ones. Absent: all.",
    )


class RunOwnershipSettings(Section):
    """Ownership of runs by workers."""

    lease_seconds: float = Field(
        30, ge=1, description="Seconds without a heartbeat after which another worker takes over a run."
    )
    grace_seconds: float = Field(
        10, ge=0, description="Seconds that a run may take to its next checkpoint when its worker stops."
    )


class SchedulerSettings(Section):
    """Scheduled runs."""

    enabled: bool = Field(True, description="Start scheduled runs.")
    poll_interval_seconds: int = Field(
        5, ge=1, le=300, description="Seconds between two reads of the schedules that other servers changed."
    )
    max_concurrent_runs: int = Field(3, ge=1, le=32, description="Maximum number of scheduled runs at once.")
    min_once_delay_seconds: int = Field(
        60, ge=1, le=86_400, description="Minimum number of seconds until a run that is scheduled once."
    )
