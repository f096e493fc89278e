"""Upgrade a SQLite file to the newest schema.

The steps here lead to the revision at which alembic took over (`storage/migrations`); a released step is
never edited. `PRAGMA user_version` counts steps and revisions, so one read tells whether an upgrade is
needed.
"""

import importlib
import sqlite3
from pathlib import Path

from deerflow.errors import ConfigError
from deerflow.storage.migrations import FOLDER, VERSION_TABLE, known_revisions, statements
from deerflow.storage.sql.checkpoint_shapes import compact

APPLICATION_ID = 0x44454552
"""Application id of our files (`DEER`)."""

_V1 = """
CREATE TABLE threads (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    user_id TEXT NOT NULL,
    status TEXT NOT NULL,
    title TEXT,
    metadata TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);
CREATE INDEX threads_by_update ON threads (user_id, updated_at);
CREATE INDEX threads_by_creation ON threads (user_id, created_at);

CREATE TABLE runs (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    thread INTEGER NOT NULL,
    status TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    owner TEXT,
    lease_until INTEGER,
    cancel TEXT,
    error TEXT,
    stop_reason TEXT,
    usage TEXT,
    message_count INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    request BLOB NOT NULL
);
CREATE INDEX runs_by_thread ON runs (thread, key);
CREATE INDEX runs_in_flight ON runs (thread) WHERE status IN ('pending', 'running');

-- place = run key << 32 | number of the batch's last event: one walk reads a run's log in order.
CREATE TABLE events (
    place INTEGER PRIMARY KEY,
    first_seq INTEGER NOT NULL,
    body BLOB NOT NULL
);
-- place = thread key << 32 | number of the fragment.
CREATE TABLE fragments (
    place INTEGER PRIMARY KEY,
    digest BLOB NOT NULL,
    body BLOB NOT NULL
);

-- A chain is one namespace of one thread. Sub-threads are named `thread/call`.
CREATE TABLE chains (
    key INTEGER PRIMARY KEY,
    thread_id TEXT NOT NULL,
    ns TEXT NOT NULL,
    UNIQUE (thread_id, ns)
);
-- The sets of channels that checkpoints hold values of. There are few, so each is kept once.
CREATE TABLE shapes (
    key INTEGER PRIMARY KEY,
    names TEXT NOT NULL UNIQUE
);
CREATE TABLE checkpoints (
    key INTEGER PRIMARY KEY,
    chain INTEGER NOT NULL,
    id BLOB NOT NULL,
    parent BLOB,
    shape INTEGER NOT NULL,
    run BLOB,
    blobs BLOB,
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX checkpoints_by_id ON checkpoints (chain, id);
CREATE TABLE writes (
    key INTEGER PRIMARY KEY,
    chain INTEGER NOT NULL,
    checkpoint BLOB NOT NULL,
    task BLOB NOT NULL,
    path TEXT NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX writes_by_checkpoint ON writes (chain, checkpoint);
-- Large channel values, each stored once per chain however many checkpoints hold it.
CREATE TABLE blobs (
    key INTEGER PRIMARY KEY,
    chain INTEGER NOT NULL,
    digest BLOB NOT NULL,
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX blobs_by_digest ON blobs (chain, digest);

CREATE TABLE items (
    key INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    value BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    ttl_seconds REAL,
    expires_at INTEGER
);
CREATE UNIQUE INDEX items_by_name ON items (namespace, name);
CREATE INDEX items_by_expiry ON items (expires_at) WHERE expires_at IS NOT NULL;
"""

_V2 = """
-- When a run may start, when not at once: microseconds.
ALTER TABLE runs ADD COLUMN start_at INTEGER;
-- user and key of a request that must not be followed twice.
ALTER TABLE runs ADD COLUMN idempotency TEXT;
-- What a rollback puts back, while the run is in flight.
ALTER TABLE runs ADD COLUMN before BLOB;
ALTER TABLE runs ADD COLUMN releases INTEGER NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX runs_by_idempotency ON runs (idempotency) WHERE idempotency IS NOT NULL;

-- Tool calls of runs in flight.
CREATE TABLE effects (
    run INTEGER NOT NULL,
    call BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    is_finished INTEGER NOT NULL,
    PRIMARY KEY (run, call)
) WITHOUT ROWID;
"""

_V3 = """
CREATE TABLE assistants (
    id TEXT PRIMARY KEY,
    user_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX assistants_by_user ON assistants (user_id, created_at);
CREATE TABLE assistant_versions (
    assistant TEXT NOT NULL,
    version INTEGER NOT NULL,
    graph_id TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT,
    config TEXT NOT NULL,
    context TEXT NOT NULL,
    metadata TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (assistant, version)
) WITHOUT ROWID;
"""

# Ids are always bytes: in PostgreSQL a column has one type.
_V4 = """
UPDATE checkpoints SET id = compact(id) WHERE typeof(id) = 'text';
UPDATE checkpoints SET parent = compact(parent) WHERE typeof(parent) = 'text';
UPDATE checkpoints SET run = compact(run) WHERE typeof(run) = 'text';
UPDATE writes SET checkpoint = compact(checkpoint) WHERE typeof(checkpoint) = 'text';
UPDATE writes SET task = compact(task) WHERE typeof(task) = 'text';
CREATE TABLE deerflow_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT deerflow_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO deerflow_version VALUES ('0001');
"""

MIGRATIONS: tuple[str, ...] = (_V1, _V2, _V3, _V4)
"""Scripts from version n to n + 1, in order; the last one leads to alembic's first revision."""


def migrate(
    connection: sqlite3.Connection,
    path: Path,
    *,
    steps: tuple[str, ...] = MIGRATIONS,
    folder: Path = FOLDER,
) -> None:
    """Upgrade the database to the newest version; refuse one that is newer or not ours."""
    later = known_revisions(folder)[1:]
    newest = len(steps) + len(later)
    version = _check_ours(connection, path, newest)
    if version == newest:
        return
    # A new file runs the plain SQL of all revisions: alembic is slow to load.
    is_new = version == 0
    more = tuple(_with_stamp(statements("sqlite", name, folder), name) for name in later) if is_new else ()
    _walk(connection, (*steps, *more))
    if _version(connection) < newest:
        importlib.import_module("deerflow.storage.migrations.run").upgrade(
            "sqlite", connection, folder=folder
        )


def _walk(connection: sqlite3.Connection, steps: tuple[str, ...]) -> None:
    while _version(connection) < len(steps):
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have migrated between the check and the lock.
            version = _version(connection)
            if version < len(steps):
                _apply(connection, steps[version], version + 1)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


def _with_stamp(script: str, revision: str) -> str:
    return f"{script};\nUPDATE {VERSION_TABLE} SET version_num = '{revision}'"


def _check_ours(connection: sqlite3.Connection, path: Path, newest: int) -> int:
    connection.execute("BEGIN")  # one snapshot for all reads: another process may be migrating right now
    version = _version(connection)
    mark = connection.execute("PRAGMA application_id").fetchone()[0]
    has_tables = connection.execute("SELECT EXISTS (SELECT 1 FROM sqlite_master)").fetchone()[0]
    connection.execute("COMMIT")
    if has_tables and mark != APPLICATION_ID:
        raise ConfigError(
            f"{path} is the database of another program or of DeerFlow 2: set database.sqlite_dir "
            "to another folder, or move the file away"
        )
    if version > newest:
        raise ConfigError(
            f"{path} was written by a newer DeerFlow (schema {version}, this one knows {newest}): "
            "update DeerFlow, or set database.sqlite_dir to another folder"
        )
    return version


def _apply(connection: sqlite3.Connection, script: str, version: int) -> None:
    connection.create_function("compact", 1, compact, deterministic=True)
    # Not `executescript`: it commits the open transaction.
    for statement in script.split(";"):
        if statement.strip():
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {version}")


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version
