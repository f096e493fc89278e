"""Settings of the database, and of runs and their events."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Literal

from pydantic import Field

from deerflow.config.section import Section


class DatabaseSettings(Section):
    """Where threads, runs, events and checkpoints are kept."""

    backend: Literal["memory", "sqlite", "postgres"] = Field(
        "sqlite", description="`sqlite` for one server, `postgres` for many, `memory` to keep nothing."
    )
    sqlite_dir: str | None = Field(None, description="Folder of the SQLite file; `{home}/data` when absent.")
    postgres_url: str = Field("", description="With `postgres`: `postgresql://user:password@host/database`.")
    postgres_schema: str = Field("", description="With `postgres`: the schema; empty: the user's own.")
    echo_sql: bool = Field(
        False, description="With `postgres`: log every statement, without its values; for debugging."
    )
    pool_size: int = Field(5, ge=1, description="With `postgres`: connections kept open; one writes.")
    pool_recycle: int = Field(300, gt=0, description="With `postgres`: seconds after which one is renewed.")
    command_timeout: float | None = Field(
        30,
        gt=0,
        description="With `postgres`: seconds for one statement, and for a database that is away.",
    )


class CheckpointerSettings(Section):
    """The older form of `database:`; used when there is no `database:` section."""

    type: Literal["memory", "sqlite", "postgres"] = Field(description="Which database.")
    connection_string: str | None = Field(None, description="The SQLite file's path, or PostgreSQL's URL.")
    postgres_schema: str = Field("", description="With `postgres`: the schema.")


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
    """What one run may take, and how long it is kept."""

    timeout_seconds: float | None = Field(
        None,
        gt=0,
        description="Seconds after which a run is stopped with status `timeout`; absent: no limit.",
    )
    max_attempts: int = Field(
        5,
        ge=1,
        description="How often a run is taken up again after its worker died, before it ends in error.",
    )
    max_parallel_tool_calls: int = Field(
        8,
        ge=1,
        description="Tool calls of one answer that run at the same time; further ones wait in line. Calls "
        "that start sub-agents are not counted: `subagents` limits those.",
    )
    snapshot_max_bytes: int = Field(
        64 * 1024 * 1024,
        ge=0,
        description="Up to this size a thread's files are kept before a run changes them, so that a rollback "
        "can put them back; 0: only an empty one.",
    )
    webhook_allow_cidrs: tuple[str, ...] = Field(
        (),
        description="Private or reserved networks that a run's `webhook` and MCP servers set over HTTP may "
        "reach, such as `10.0.0.0/8`; public addresses always may.",
    )
    snapshots_kept: int = Field(20, ge=1, description="How many such snapshots of a thread are kept.")
    retention_days: float | None = Field(
        None, gt=0, description="Days that the events of an ended run are kept; absent: for good."
    )
    checkpoints_kept: int | None = Field(
        None,
        ge=1,
        description="How many of its newest checkpoints a thread keeps at the end of a run; those before "
        "cannot be gone back to. Absent: all.",
    )


class RunEventsSettings(Section):
    """How the log of a run is kept; ours always is in the database."""

    backend: Literal["memory", "db", "jsonl"] = Field(
        "db", description="Accepted for older files: the log is always in the database."
    )
    max_trace_content: int = Field(10_240, ge=0, description="Characters kept of one traced text.")
    track_token_usage: bool = Field(True, description="Count tokens per call.")


class RunOwnershipSettings(Section):
    """How long a worker owns a run without a sign of life."""

    lease_seconds: float = Field(
        30, ge=1, description="Seconds after which a silent worker's run is taken over."
    )
    grace_seconds: float = Field(10, ge=0, description="Seconds given to a worker that is being stopped.")


class StreamBridgeSettings(Section):
    """How events reach their readers."""

    type: Literal["memory", "redis"] = Field(
        "memory", description="Accepted for older files: events always go through the database's log."
    )
    redis_url: str | None = Field(None, description="With `redis`: the server.")
    queue_maxsize: int = Field(
        256, ge=1, description="Events held in memory for one reader; the log has the rest."
    )
    max_connections: int | None = Field(None, ge=1, description="With `redis`: connections.")
    stream_ttl_seconds: int = Field(86_400, ge=0, description="With `redis`: seconds that a stream is kept.")
    recovered_stream_cleanup_delay_seconds: float = Field(
        60, ge=0, description="With `redis`: seconds before a recovered stream is cleaned up."
    )


class DedupeStorageSettings(Section):
    """Where delivered messages of channels are remembered."""

    backend: Literal["auto", "memory", "postgres"] = Field("auto", description="Where.")
