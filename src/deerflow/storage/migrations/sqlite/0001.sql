CREATE TABLE threads (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    user_id TEXT NOT NULL,
    status TEXT NOT NULL,
    title TEXT,
    metadata TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    -- Pending interrupts as JSON by task, so that a list of threads reads no checkpoints.
    interrupts TEXT,
    -- Whether the last answer is a question to the user.
    asks BOOLEAN NOT NULL DEFAULT FALSE
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
    -- Seconds by the database's clock.
    lease_until REAL,
    cancel TEXT,
    error TEXT,
    stop_reason TEXT,
    usage TEXT,
    message_count INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    request BLOB NOT NULL,
    -- Start time in microseconds, if not at once.
    start_at INTEGER,
    -- User and idempotency key of the request.
    idempotency TEXT,
    -- What a rollback restores, while the run is in flight.
    before BLOB,
    -- How many of the attempts ended because their process was stopped.
    releases INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX runs_by_thread ON runs (thread, key);
CREATE INDEX runs_in_flight ON runs (thread) WHERE status IN ('pending', 'running');
CREATE UNIQUE INDEX runs_by_idempotency ON runs (idempotency) WHERE idempotency IS NOT NULL;

-- position = run key << 32 | number of the batch's last event: one range scan reads a run's log in order.
CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    first_seq INTEGER NOT NULL,
    body BLOB NOT NULL
);
-- position = thread key << 32 | number of the fragment.
CREATE TABLE fragments (
    position INTEGER PRIMARY KEY,
    digest BLOB NOT NULL,
    body BLOB NOT NULL
);

-- Tool calls of runs in flight.
CREATE TABLE effects (
    run INTEGER NOT NULL,
    call BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    is_finished INTEGER NOT NULL,
    PRIMARY KEY (run, call)
) WITHOUT ROWID;

-- A chain is one namespace of one thread. Sub-threads are named `thread/call`.
CREATE TABLE chains (
    key INTEGER PRIMARY KEY,
    thread_id TEXT NOT NULL,
    ns TEXT NOT NULL,
    UNIQUE (thread_id, ns)
);
-- Sets of channels that checkpoints hold values of. There are few, so each is stored once.
CREATE TABLE channel_sets (
    key INTEGER PRIMARY KEY,
    names TEXT NOT NULL UNIQUE
);
CREATE TABLE checkpoints (
    key INTEGER PRIMARY KEY,
    chain INTEGER NOT NULL,
    id BLOB NOT NULL,
    parent BLOB,
    channel_set INTEGER NOT NULL,
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

-- Texts that are found by words and by meaning (`storage/passages.py`).
CREATE TABLE collections (
    key INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    -- The embedding model of which every passage has a vector.
    model TEXT,
    version TEXT NOT NULL DEFAULT '',
    passages INTEGER NOT NULL DEFAULT 0,
    terms INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE sources (
    collection INTEGER NOT NULL,
    name TEXT NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (collection, name)
) WITHOUT ROWID;
CREATE TABLE passages (
    key INTEGER PRIMARY KEY,
    collection INTEGER NOT NULL,
    source TEXT NOT NULL,
    part INTEGER NOT NULL,
    body TEXT NOT NULL,
    terms TEXT NOT NULL,
    data TEXT NOT NULL
);
CREATE UNIQUE INDEX passages_by_source ON passages (collection, source, part);
-- Without a copy of its contents: `passages.terms` has them.
CREATE VIRTUAL TABLE passage_terms USING fts5(tokens, content='', detail=none, columnsize=0);
-- Vectors of 64 neighbouring passages in one row: reading 10,000 takes a fifth of the time.
CREATE TABLE passage_vectors (
    collection INTEGER NOT NULL,
    model TEXT NOT NULL,
    block INTEGER NOT NULL,
    passages BLOB NOT NULL,
    vectors BLOB NOT NULL,
    PRIMARY KEY (collection, model, block)
) WITHOUT ROWID;
